"""Plays an agent of one account for many loops: it notes each call, and meets the account's limit.

While the file ACCOUNT/until holds a moment in the future, a call fails with a usage limit until then. A call
waits for ACCOUNT/go if ACCOUNT/hold is there; then it ticks the first open box. With ACCOUNT/expired its
login has expired.

quota_agent.py ACCOUNT
"""

import os
import sys
import time

account = sys.argv[1]
sys.stdin.read()
with open(os.path.join(account, "calls"), "a") as file:
    file.write(f"{time.time()} {os.path.basename(os.getcwd())}\n")
if os.path.exists(os.path.join(account, "expired")):
    sys.exit("Error: 401 Unauthorized: OAuth token has expired. Please run /login")
try:
    with open(os.path.join(account, "until")) as file:
        left_s = float(file.read()) - time.time()
except FileNotFoundError:
    left_s = 0.0
if left_s > 0:
    sys.exit(f"Error: You've hit your usage limit. Try again in {left_s:.3f} seconds.")
while os.path.exists(os.path.join(account, "hold")) and not os.path.exists(os.path.join(account, "go")):
    time.sleep(0.01)
with open("TASKS.md") as file:
    text = file.read()
with open("TASKS.md", "w") as file:
    file.write(text.replace("- [ ]", "- [x]", 1))
print("one more task is done", flush=True)
