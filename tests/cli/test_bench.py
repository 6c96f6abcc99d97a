"""`koine bench kernels`: few kernels, no byte too many. The floors are checked against sums done here by hand."""
import json
import subprocess

import pytest

KERNELS = {"add": 1, "matmul": 1, "linear_relu": 1, "softmax": 1, "layernorm": 1, "attention": 3, "embedding": 1,
           "conv_bn": 1, "digits_step": 40}

B, A1, A2, POOLED, X, LOGITS = 128, 16 * 12 * 12, 32 * 8 * 8, 512, 28 * 28, 10
W1, W2, WL = 400 + 16, 12800 + 32, 5120 + 10
FLOATS = {
    "add": 3 * 4096**2,
    "matmul": 3 * 1024**2,
    "linear_relu": 64 * 1024 * 2 + 1024**2 + 1024,
    "softmax": 2 * 4096**2,
    "layernorm": 2 * 4096**2 + 2 * 4096,
    "attention": 12 * (4 * 128 * 64 + 2 * 128 * 128),  # q k v out, the scores written and read
    "embedding": 1024 + 2 * 1024 * 768,
    "conv_bn": 2 * 64 * 56 * 56 + 64 * 64 * 9 + 4 * 64,
    # images for the first layer and for its gradient; activations written, read forward and back; gradients written and
    # read once; each weight read for what it computes, and then for the gradient behind it or its own update, its three of Adam's
    # read and written
    "digits_step": B * (2 * X + 3 * A1 + 3 * A2 + 3 * POOLED + 2 * A2 + 2 * A1 + 2 * LOGITS + 1)
    + 7 * W1 + 7 * W2 + 7 * WL,
}


@pytest.mark.parametrize("program", KERNELS)
def test_kernels_and_bytes(koine, program):
    r = json.loads(koine("bench", "kernels", program, "--json").stdout)
    assert r["kernels"] <= KERNELS[program]
    assert r["bytes"] <= 1.05 * r["floor"]
    assert r["floor"] == pytest.approx(4 * FLOATS[program], rel=2e-3)


def test_memory_moved(koine):
    """Rows of memory sizes, what is most above the floor first; they add up to the program's."""
    whole, *rows = koine.json("bench", "kernels", "moe_train", "--memory")
    assert sum(r["written"] + r["read"] for r in rows) == whole["bytes"]
    assert sum(r["floor_written"] + r["floor_read"] for r in rows) == whole["floor"]
    assert [r["above"] for r in rows] == sorted((r["above"] for r in rows), reverse=True)
    weights, = (r for r in rows if r["memory"] == 4 * 8 * 1024 * 512)  # up and down: each, and two of Adam's, read and written; down also goes back
    assert (weights["floor_written"], weights["floor_read"]) == (6 * weights["memory"], 8 * weights["memory"])
    said = koine("bench", "kernels", "unet_forward", "--memory").stdout.splitlines()
    assert said[0].startswith("unet_forward") and "floor" in said[1] and len(said) > 4


# The best known, where the bar is far.
ZOO = {"resnet50_forward": 54, "resnet50_train": 278, "gpt2_forward": 8 * 12 + 4, "gpt2_train": 265, "gpt2_decode": 8 * 12 + 4,
       "llama_decode": 7 * 16 + 4, "vit_forward": 8 * 12 + 4, "vit_train": 223, "lstm_forward": 2 * 32 + 1, "lstm_train": 138,
       "unet_forward": 11, "unet_train": 32, "moe_forward": 4, "moe_train": 14}


# Bytes over the floor.
BYTES = {"resnet50_forward": 1.01, "gpt2_forward": 1.01, "gpt2_decode": 1.18, "llama_decode": 1.09, "vit_forward": 1.03, "vit_train": 1.25, "lstm_forward": 0.91,
         "lstm_train": 0.95, "unet_forward": 1.35, "unet_train": 1.10, "moe_forward": 1.11, "moe_train": 1.20}


@pytest.mark.parametrize("program", ZOO)
def test_networks(koine, program):
    row, = koine.json("bench", "kernels", program)
    assert row["kernels"] <= ZOO[program]
    assert row["bytes"] <= BYTES.get(program, 1.5) * row["floor"]


def test_make_bench_builds_what_it_runs(root, tmp_path):
    """From a fresh clone `make bench` alone must do; that `make test` has built the networks before is no excuse."""
    plan = subprocess.run(["make", "-n", "-C", root, f"B={tmp_path}/b", "bench"], capture_output=True, text=True).stdout
    for program in ("koine", *(f"zoo/{z}" for z in ZOO)):
        assert f"-o {tmp_path}/b/{program}" in plan, program


def test_the_model_is_held_against_the_clock(koine):
    """What it says depends on the machine; that each kernel is measured, and nothing fails, does not."""
    row, = koine.json("bench", "model", "linear_relu", env={"KN_CODE": "x86", "KN_THREADS": "1"})
    assert row["program"] == "linear_relu" and row["measured"] > 20 and row["lists"] > row["measured"]
    assert -1 <= row["correlation"] <= 1 and row["first"] >= 1 and row["heuristics"] >= 1
