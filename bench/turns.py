"""What a process does that plays by turns (players.py): it answers a line of JSON with a line of JSON, and is quiet in between. Import it
before what may print: standard output is for answers, what others print there goes to standard error."""
import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def quiet():
    """Wait until no thread of this process runs: some libraries' wait for their next work in a loop, on a core the next side needs."""
    for _ in range(100):
        spent = time.process_time()
        time.sleep(0.005)
        if time.process_time() - spent < 0.001:
            return


def serve(answer_of):
    """Until standard input ends. A failure is answered {error}."""
    for line in sys.stdin:
        try:
            answer = answer_of(json.loads(line))
        except Exception as e:  # whatever a peer raises is its answer
            answer = {"error": f"{type(e).__name__}: {(str(e).splitlines() or [''])[0]}"[:100]}
        print(json.dumps(answer), file=answers, flush=True)
