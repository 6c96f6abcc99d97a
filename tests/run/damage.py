"""What may have happened to a file that is kept: cut, a bit of it flipped, something behind it."""
import random


def damages(data, seed, cuts, flips):
    rng = random.Random(seed)
    yield b""
    yield data[:1]
    for _ in range(cuts):
        yield data[:rng.randrange(len(data))]
    for _ in range(flips):
        at = rng.randrange(len(data))
        yield data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]
    yield data + b"\0"
