"""tests/python/doors.py MOESIM FOLDER - each FOLDER/plan-*.json and run-*.json through Python, and what is not refused
through a `moesim serve`; writes NAME.python and NAME.serve beside it: {"answer": ...} or {"error": ...}. A run comes
out of `serve` as the result in the data of its page."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import moesim


def python(file, verb):
    try:
        return {"answer": getattr(moesim, verb)(str(file)).to_dict()}
    except moesim.MoesimError as error:
        return {"error": str(error)}


class Server:
    def __init__(self, program):
        self.process = subprocess.Popen([program, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().split()[2].rstrip("/")

    def ask(self, method, path, body=None):
        head = {"Content-Type": "application/json"} if body else {}
        request = urllib.request.Request(self.url + path, body, head, method=method)
        try:
            with urllib.request.urlopen(request) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def run(self, body):
        told = self.ask("POST", "/api/run", body)
        return {"answer": told["result"]} if "result" in told else told

    def plan(self, body):
        told = self.ask("POST", "/api/plan", body)
        while "id" in told:
            now = self.ask("GET", f"/api/plan/{told['id']}")
            if now["state"] not in ("waiting", "running"):
                return {"answer": now["plan"]} if now["state"] == "done" else {"error": now["message"] or now["state"]}
            time.sleep(0.01)
        return told


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    files = [(file, file.name.split("-")[0]) for file in sorted(folder.glob("*-*.json"))]
    for file, verb in files:
        file.with_suffix(".python").write_text(json.dumps(python(file, verb)))
    server = Server(program)
    try:
        for file, verb in files:
            told = getattr(server, verb)(file.read_bytes())
            file.with_suffix(".serve").write_text(json.dumps(told))
    finally:
        server.process.terminate()
        server.process.wait()


main()
