"""Plays a loop that reports its iterations; iteration N is the shell script N of a directory.

It says where HEAD is as an iteration begins, waits for the verdict at its end, again and again while nobody
answers, and appends what it was told to TOLD in the directory, a line of JSON each. It ends when it is told
to (stop 0, pause 75), and with the code in the file END when that is there. With ``once`` it does the next
script and ends, with the script's code: an iteration that is a run.

iterator.py DIRECTORY [once]
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import time

directory = sys.argv[1]
run_id = os.environ["RALPH_RUN_ID"]


class Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(os.environ["RALPHD_SOCKET"])


def report(kind: str, report_id: str, **words: object) -> dict[str, object]:
    body = json.dumps({"run_id": run_id, "id": report_id, "kind": kind, **words})
    while True:
        try:
            connection = Connection("ralphd")
            path = f"/v1/ralphs/{os.environ['RALPH_NAME']}/reports"
            connection.request("POST", path, body, {"content-type": "application/json"})
            reply = connection.getresponse()
            answer: dict[str, object] = json.loads(reply.read())
            if reply.status < 500:
                return answer
        except (OSError, ValueError, http.client.HTTPException):
            pass
        time.sleep(0.05)


def done(script: str) -> int:
    code = subprocess.run(["/bin/sh", script]).returncode
    os.rename(script, f"{script}.done")
    return code


def scripts() -> list[int]:
    return sorted(int(name) for name in os.listdir(directory) if name.isdigit())


def awaited() -> int:
    while True:
        if os.path.exists(f"{directory}/END"):
            with open(f"{directory}/END") as file:
                code = int(file.read())
            os.unlink(f"{directory}/END")
            sys.exit(code)
        if found := scripts():
            return found[0]
        time.sleep(0.01)


if sys.argv[2:] == ["once"]:
    sys.exit(done(f"{directory}/{awaited()}"))
while True:
    number = awaited()
    report("iteration-started", f"s{number}", iteration=number)
    done(f"{directory}/{number}")
    told = report("iteration-finished", f"f{number}", iteration=number, task={"id": f"t{number}"})
    with open(f"{directory}/TOLD", "a") as file:
        file.write(json.dumps(told) + "\n")
    if told.get("next") != "continue":
        sys.exit(75 if told.get("next") == "pause" else 0)
