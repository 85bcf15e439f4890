"""The Python package over libmoesim: MOESIM_LIBRARY or the wheel's own, run from the top of the source tree."""

import copy
import importlib.util
import json
import keyword
import os
import pickle
import signal
import subprocess
import sys
import threading
import types
import unittest
from pathlib import Path

import moesim
from moesim import files, shapes

RUN = "scenarios/run-llama3-70b-h100-64.json"
SMALL = dict(model="llama3-8b", hardware="h100-sxm", gpus=4)
FULL = os.environ.get("MOESIM_TIER", "full") == "full"
LARGE = dict(model="deepseek-v3", hardware="h100-sxm", gpus=2048)


def small():
    """A request of few layouts."""
    request = moesim.request(**SMALL, global_batch_size=32)
    request["model"] = {"base": "llama3-8b", "num_layers": 8}
    request["options"] = {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}
    request["training"]["micro_batch_size"] = 1
    request["layout"] = {"cp": 1, "vpp": 1}
    return request


class Runs(unittest.TestCase):
    def setUp(self):
        self.run_ = moesim.run(RUN, fidelity="fast")

    def test_figures_are_attributes_of_typed_objects(self):
        run = self.run_
        self.assertIsInstance(run, moesim.Run)
        self.assertIsInstance(run.memory.stages[0], shapes.MemoryStages)
        self.assertGreater(run.step_time_s, 0)
        self.assertEqual(run.step_time_s, run["step_time_s"])
        self.assertEqual(run.memory.stages[0].peak_B, run.to_dict()["memory"]["stages"][0]["peak_B"])
        self.assertIsInstance(run.time.comm["tp"], shapes.TimeComm)
        self.assertIsNone(run.draws)  # optional, not asked for
        with self.assertRaisesRegex(AttributeError, "did you mean step_time_s"):
            run.step_tiem_s

    def test_figures_read_one_by_one_are_those_of_the_whole(self):
        def walk(later, whole, where):
            for key in later._known():
                value = getattr(later, key)
                self.assertEqual(value, whole.get(key), f"{where}.{key}")
                self.assertIs(type(value), type(getattr(type(later)(whole), key)))
                if key in ("time", "memory", "bound"):
                    walk(value, whole[key], key)

        for file in (RUN, "scenarios/run-deepseek-v3-gb200-256.json"):
            for fidelity in ("bound", "fast", "full"):
                whole = moesim.run(file, fidelity).to_dict()
                later = moesim.run(file, fidelity)
                self.assertRaises(AttributeError, object.__getattribute__, later, "_data")
                self.assertIsInstance(later.step_time_s, float)
                self.assertIsInstance(later.time.compute_s, float)
                self.assertRaises(AttributeError, object.__getattribute__, later, "_data")  # not read as a whole
                whole["elapsed_s"] = later.elapsed_s
                walk(later, whole, "")
                self.assertEqual(copy.copy(later), pickle.loads(pickle.dumps(later)))

    def test_every_key_that_comes_back_is_typed(self):
        def walk(record, where):
            known = record._known()
            for key, value in record.items():
                if known and not record._any:
                    self.assertTrue(key in known or hasattr(dict, key) or keyword.iskeyword(key), f"{where}.{key}")
                for item in value if isinstance(value, list) else [value]:
                    if type(item) not in (moesim.Record,) and isinstance(item, moesim.Record):
                        walk(item, f"{where}.{key}")

        walk(moesim.run(RUN, fidelity="full" if FULL else "fast"), "run")
        walk(moesim.plan(small(), explain=FULL), "plan")
        if FULL:
            walk(moesim.run(RUN, fidelity="fast", explain=True), "run")

    def test_a_dict_is_the_file(self):
        scenario = json.loads(Path(RUN).read_text())
        mine = moesim.run(scenario, fidelity="fast")
        self.assertEqual(mine.step_time_s, self.run_.step_time_s)
        scenario["layout"]["tp"] *= 2
        self.assertNotEqual(moesim.run(scenario, fidelity="fast").step_time_s, mine.step_time_s)

    def test_copies_are_the_same(self):
        self.assertEqual(pickle.loads(pickle.dumps(self.run_)), self.run_)
        self.assertEqual(copy.deepcopy(self.run_), self.run_)
        self.assertEqual(type(copy.copy(self.run_)), moesim.Run)

    def test_rows_and_views(self):
        frames = types.ModuleType("pandas")
        frames.DataFrame = lambda rows: ("frame", rows)
        before, sys.modules["pandas"] = sys.modules.get("pandas"), frames
        try:
            kind, rows = self.run_.to_pandas()
        finally:
            sys.modules.pop("pandas")
            if before:
                sys.modules["pandas"] = before
        self.assertEqual((kind, len(rows)), ("frame", 1))
        self.assertEqual(rows[0]["memory.peak_B"], self.run_.memory.peak_B)
        html = self.run_._repr_html_()
        self.assertIn("<table>", html)
        self.assertIn("<svg", html)
        self.assertIn("MFU", repr(self.run_))

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "no pandas")
    def test_frames_of_pandas(self):
        frame = self.run_.to_pandas()
        self.assertEqual(frame.shape[0], 1)
        self.assertEqual(frame["memory.peak_B"][0], self.run_.memory.peak_B)
        self.assertEqual(frame["step_time_s"].dtype.kind, "f")
        plan = moesim.plan(small())
        layouts = plan.to_pandas()
        self.assertEqual(len(layouts), len(plan.best))
        self.assertTrue(layouts["step_time_s"].is_monotonic_increasing)
        self.assertEqual(list(layouts["mfu"]), [entry.mfu for entry in plan.best])

    def test_names_cannot_break_out_of_the_view(self):
        scenario = json.loads(Path(RUN).read_text()) | {"name": "<script>x</script>"}
        self.assertNotIn("<script>", moesim.run(scenario, fidelity="fast")._repr_html_())

    def test_launch_page_and_names(self):
        self.assertIn("--tensor-model-parallel-size", moesim.launch(RUN))
        self.assertIn("#SBATCH", moesim.launch(RUN, "slurm"))
        titan = "scenarios/published/torchtitan/TT-8b-h100-8-compile-fp8.json"
        self.assertIn("[parallelism]", moesim.launch(titan))
        self.assertIn("deepseek-v3", moesim.models())
        self.assertIn("h100-sxm", moesim.machines())


class Plans(unittest.TestCase):
    def test_the_winner_runs_as_it_was_predicted(self):
        plan = moesim.plan(small(), top=2)
        self.assertIsInstance(plan, moesim.Plan)
        self.assertEqual(len(plan.best), 2)
        self.assertLessEqual(plan.best[0].step_time_s, plan.best[1].step_time_s)
        self.assertEqual(moesim.run(plan.best[0].scenario).step_time_s, plan.best[0].step_time_s)
        self.assertEqual([row["step_time_s"] for row in plan.rows()], [best.step_time_s for best in plan.best])
        self.assertIn("<table>", plan._repr_html_())

    def test_a_request_may_be_changed(self):
        request = small()
        request["layout"]["tp"] = 4
        for best in moesim.plan(request).best:
            self.assertEqual(best.scenario.layout["tp"], 4)
        with self.assertRaises(TypeError):
            moesim.plan(request, model="llama3-8b")

    def test_nothing_that_fits_is_a_result(self):
        plan = moesim.plan(model="llama3-70b", hardware="h100-sxm", gpus=1)
        self.assertEqual(plan.best, [])
        self.assertIn("nothing fits", plan._repr_html_())

    def test_progress_ends_a_search_with_what_was_found(self):
        seen = []

        def progress(done, so_far):
            seen.append(done)
            return False

        plan = moesim.plan(**LARGE, progress=progress)
        self.assertTrue(plan.interrupted)
        self.assertTrue(seen)

    def test_an_exception_of_progress_comes_out(self):
        with self.assertRaises(ZeroDivisionError):
            moesim.plan(**LARGE, progress=lambda done, so_far: 1 / 0)

    def test_ctrl_c_ends_a_search(self):
        told = []

        def progress(done, so_far):
            told.append(done)
            if len(told) == 1:
                os.kill(os.getpid(), signal.SIGINT)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with self.assertRaises(KeyboardInterrupt):
                moesim.plan(**LARGE, progress=progress)
        finally:
            signal.signal(signal.SIGINT, before)


    def test_ctrl_c_leaves_a_long_run(self):
        scenario = json.loads(Path("scenarios/run-deepseek-v3-gb200-256.json").read_text())
        scenario["training"]["routing"] = {"zipf": 0.5}
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        try:
            with self.assertRaises(KeyboardInterrupt):
                timer.start()
                moesim.run(scenario, draws=40)
                timer.join()
            left = [thread for thread in threading.enumerate() if thread.name == "moesim"]
            self.assertEqual(len(left), 1)
            left[0].join()
        finally:
            signal.signal(signal.SIGINT, before)


class Studies(unittest.TestCase):
    def test_a_machine_that_own_runs_anchor(self):
        file = "scenarios/run-deepseek-v3-gb200-256.json"
        scenario = json.loads(Path(file).read_text())
        machine = moesim.anchor(file, name="mine", date="2026-11-28")
        self.assertEqual((machine["name"], machine["base"]), ("mine", scenario["hardware"]))
        measured = scenario["measured"]["step_time_s"]
        anchored = scenario | {"hardware": machine}
        before, after = (abs(moesim.run(s, "fast").step_time_s - measured) for s in (scenario, anchored))
        self.assertLess(after, before)
        with self.assertRaises(moesim.UsageError):
            moesim.anchor()

    def test_whatif_and_goodput(self):
        study = {
            "schema": 1,
            "base": json.loads(Path(RUN).read_text()),
            "fidelity": "fast",
            "axes": [{"key": "training.global_batch_size", "values": [256, 512]}],
        }
        result = moesim.whatif(study)
        self.assertEqual(len(result.points), 2)
        self.assertEqual([row["label"] for row in result.rows()], [point.label for point in result.points])
        result = moesim.goodput(json.loads(Path("scenarios/goodput/llama3-405b-16384.json").read_text()) | {
            "run": str(Path("scenarios/run-llama3-70b-h100-64.json").resolve())})
        self.assertTrue(0 < result.closed_form.effective_time < 1)


class Errors(unittest.TestCase):
    def test_they_say_where(self):
        with self.assertRaises(moesim.InputError) as caught:
            moesim.run({"schema": 1, "nmae": "x"})
        error = caught.exception
        self.assertIsInstance(error, ValueError)
        self.assertEqual((error.file, error.line, error.path, error.status), ("dict", None, "nmae", 3))
        self.assertIn("did you mean", error.reason)
        with self.assertRaises(moesim.EnvironmentFailure) as caught:
            moesim.run("/nonexistent.json")
        self.assertIsInstance(caught.exception, OSError)
        self.assertEqual(caught.exception.file, "/nonexistent.json")
        with self.assertRaisesRegex(moesim.UsageError, "give model, hardware and gpus"):
            moesim.plan(model="llama3-8b")
        with self.assertRaisesRegex(moesim.InputError, "plan.training_tokens: is 1e.308"):
            moesim.request(**SMALL, tokens="1e308")
        with self.assertRaisesRegex(moesim.UsageError, "seq_length 16.9: give numbers from 1 to"):
            moesim.request(**SMALL, seq_length="16.9")
        with self.assertRaisesRegex(moesim.InputError, "fidelity"):
            moesim.run(RUN, fidelity="fats")
        with self.assertRaises(TypeError):
            moesim.run(3)
        with self.assertRaises(ValueError):
            moesim.run({"schema": 1, "gpus": float("nan")})


class Threads(unittest.TestCase):
    def test_calls_beside_each_other_give_the_same(self):
        scenario = json.loads(Path(RUN).read_text())

        def settled(scenario, i):
            run = moesim.run(scenario | {"name": str(i)}, fidelity="fast").to_dict()
            return {key: value for key, value in run.items() if key != "elapsed_s"}

        want = [settled(scenario, i) for i in range(2)]
        wrong = []

        def work(i):
            for _ in range(3):
                if settled(scenario, i) != want[i]:
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Memory(unittest.TestCase):
    def test_runs_leave_the_memory_that_they_take_to_the_next(self):
        program = """
import json, resource, moesim
names = ("run-llama3-70b-h100-64", "run-deepseek-v3-gb200-256", "run-deepseek-v3-2048-pp16")
scenarios = [json.load(open(f"scenarios/{name}.json")) for name in names]
def runs(n):
    for scenario in n * scenarios:
        moesim.run(scenario, "fast").step_time_s
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(-runs(3) + runs(100))
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        self.assertLess(int(done.stdout), 500)  # thousands, where the kernel gets pages back after every run


class Types(unittest.TestCase):
    def test_files_have_their_keys(self):
        self.assertIn("seq_length", files.ScenarioTraining.__annotations__)
        self.assertIn("tokens per sequence", files.ScenarioTraining.__doc__)
        self.assertIn("one optimizer step", moesim.Run.__mro__[1].__doc__)


if __name__ == "__main__":
    unittest.main()
