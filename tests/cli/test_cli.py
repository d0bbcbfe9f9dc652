"""The command line as a user meets it: real processes, real files, real MuJoCo."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import koopax as package

KOOPAX = Path(sys.executable).with_name("koopax")


def koopax(*arguments, cwd, check=True, **environment):
    settings = {"env": os.environ | environment, "capture_output": True, "text": True}
    done = subprocess.run([KOOPAX, *map(str, arguments)], cwd=cwd, **settings)
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table of a forced pendulum's swings, as somebody's own log would be."""
    folder = tmp_path_factory.mktemp("user")
    rng = np.random.default_rng(0)
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["trial", "angle", "speed", "torque"])
        for trial in range(12):
            angle, speed = rng.normal(size=2)
            for _ in range(61):
                torque = rng.normal()
                writer.writerow([trial, angle, speed, torque])
                speed += 0.05 * (-np.sin(angle) - 0.1 * speed + torque)
                angle += 0.05 * speed
    return folder


TABLE = ("--episode", "trial", "--state", "angle,speed", "--action", "torque", "--reward", "none")
TRAIN = ("train", "log.csv", *TABLE, "--horizon", 20, "--batch-size", 8, "--latent-size", 16, "--log-every", 2)


@pytest.fixture(scope="module")
def run(folder):
    koopax(*TRAIN, "--steps", 20, "--out", "runs/a", cwd=folder)
    return folder / "runs" / "a"


@pytest.mark.quick("flipped")
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_making_a_damaged_set_mends_it(damage, tmp_path):
    make = ("data", "make", "koopax/halfcheetah/expert-v0", "--steps", 300, "--workers", 1)
    own = {"KOOPAX_DATA": str(tmp_path / "cache")}
    made = Path(koopax(*make, cwd=tmp_path, **own).stdout.strip())
    before = {file: file.read_bytes() for file in made.rglob("*") if file.is_file()}
    largest = max(before, key=lambda file: len(before[file]))
    whole = before[largest]
    if damage == "gone":
        largest.unlink()
    else:
        largest.write_bytes(whole[:-100] if damage == "cut" else whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
        assert koopax("data", "inspect", made, cwd=tmp_path, check=False, **own).returncode == 2
    assert koopax(*make, cwd=tmp_path, **own).stdout.strip() == str(made)
    assert {file: file.read_bytes() for file in made.rglob("*") if file.is_file()} == before


def test_help_imports_nothing_heavy(folder):
    script = """
import sys
from koopax.cli import main
sys.argv = ["koopax", "train", "--help"]
try:
    main()
except SystemExit:
    pass
heavy = {"jax", "numpy", "equinox", "gymnasium", "matplotlib", "pyarrow", "h5py"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "--horizon" in done.stdout


def test_help_shows_what_options_take(folder):
    shown = koopax("train", "--help", cwd=folder, COLUMNS="80").stdout
    assert "--latent-size INT" in shown
    assert "{None}" not in shown
    assert "--no-wandb" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_the_version_is_told(folder):
    assert koopax("--version", cwd=folder).stdout == f"koopax {package.__version__}\n"


@pytest.mark.slow
def test_a_second_run_compiles_nothing(folder):
    settings = (*TRAIN, "--steps", 2, "--validate-every", 2)
    # Nothing is too small to be kept, so a program that differs would be a new file.
    environment = {"KOOPAX_DATA": str(folder / "kept"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    kept = []
    for number in range(2):
        done = koopax(
            *settings, "--out", f"runs/kept-{number}", cwd=folder, JAX_COMPILATION_CACHE_DIR="", **environment
        )
        assert "error" not in done.stderr.lower()
        assert "warning" not in done.stderr.lower()
        kept.append({path.name for path in (folder / "kept" / "compilations").glob("*/*-cache")})
    assert kept[0] == kept[1]
    assert len(kept[0]) > 5
    models = [(folder / "runs" / f"kept-{number}" / "model.koopax").read_bytes() for number in range(2)]
    assert models[0] == models[1]


def test_inspect_an_own_table(folder):
    document = json.loads(koopax("data", "inspect", "log.csv", *TABLE, "--json", cwd=folder).stdout)
    assert document["episodes"] == 12
    assert document["steps"] == 12 * 60
    assert (document["state_size"], document["action_size"]) == (2, 1)
    assert document["returns"]["mean"] is None
    shown = koopax("data", "inspect", "log.csv", *TABLE, "--plot", "log.png", cwd=folder).stdout
    assert "no rewards" in shown
    assert "mean return" not in shown
    assert (folder / "log.png").stat().st_size > 1000


@pytest.mark.slow
def test_train_evaluate_and_look_at_the_spectrum(folder, run):
    assert {"config.json", "metrics.jsonl", "model.koopax", "best.koopax"} <= {path.name for path in run.iterdir()}
    config = json.loads((run / "config.json").read_text())
    assert config["outcome"]["step"] == 20
    assert config["data"]["source"] == str(folder / "log.csv")
    assert config["train"]["learning_rate"] > 0
    assert {"versions", "commit", "machine"} <= set(config)

    document = json.loads(koopax("evaluate", run, "--horizon", 30, "--json", cwd="/").stdout)
    assert document["windows_chosen_by"]["horizon"] == 30
    assert document["training"] == json.loads((run / "config.json").read_text())
    assert {"versions", "commit", "machine"} <= set(document)
    assert document["model"] == "koopman"
    assert document["horizon"] == 30
    assert len(document["state"]["per_step"]) == 30
    assert document["reward"] is None  # the table has no column of rewards
    assert set(document["baselines"]) == {"constant", "mean", "dmdc"}
    assert "mean" in koopax("evaluate", run, "log.csv", *TABLE, "--horizon", 5, "--best", cwd=folder).stdout

    assert "half life" in koopax("spectrum", run, cwd=folder).stdout
    assert (run / "spectrum.png").stat().st_size > 1000
    document = json.loads(koopax("spectrum", run / "model.koopax", "--json", cwd=folder).stdout)
    assert len(document["modes"]["half_life"]) == 8


@pytest.mark.slow
def test_the_own_data_is_tested_on_held_out_episodes_only(folder, run):
    held_out = json.loads(koopax("evaluate", run, "--horizon", 5, "--json", cwd=folder).stdout)
    named = koopax("evaluate", run, "log.csv", *TABLE, "--horizon", 5, "--json", cwd=folder)
    assert json.loads(named.stdout) == held_out
    assert "held out" in named.stderr
    koopax("data", "convert", "log.csv", "renamed.npz", *TABLE, cwd=folder)
    renamed = koopax("evaluate", run, "renamed.npz", "--horizon", 5, "--json", cwd=folder)
    assert json.loads(renamed.stdout) == held_out

    (folder / "other.csv").write_text("\n".join((folder / "log.csv").read_text().splitlines()[:-61]) + "\n")
    other = koopax("evaluate", run, "other.csv", *TABLE, "--horizon", 5, "--json", cwd=folder)
    assert json.loads(other.stdout)["windows"] == 11 * 56
    assert "is not the data that" in other.stderr


@pytest.mark.slow
def test_data_that_has_changed_is_noticed(folder):
    original = (folder / "log.csv").read_text()
    (folder / "changing.csv").write_text(original)
    settings = ("changing.csv", *TRAIN[2:], "--steps", 4, "--out", "runs/changing")
    koopax("train", *settings, cwd=folder)
    lines = original.splitlines()
    (folder / "changing.csv").write_text("\n".join(lines[:1] + lines[62:]) + "\n")
    for command in (("evaluate", "runs/changing", "--horizon", 5), ("train", "--resume", "runs/changing")):
        done = koopax(*command, cwd=folder, check=False)
        assert done.returncode == 2
        assert "restore it" in done.stderr or "resume it with the data it was begun on" in done.stderr


@pytest.mark.slow
def test_several_seeds_are_several_runs(folder):
    settings = (*TRAIN, "--batch-size", 4, "--seed", 2, "--checkpoint-every", 50)
    koopax(*settings, "--seeds", 2, "--steps", 100, "--out", "runs/several", cwd=folder)
    stopped = folder / "runs" / "several-stopped"
    arguments = (*settings, "--seeds", 2, "--steps", 100_000, "--out", stopped)
    process = subprocess.Popen([KOOPAX, *map(str, arguments)], cwd=folder, stderr=subprocess.PIPE)
    wait_for(lambda: len(lines(stopped / "seed-2" / "metrics.jsonl")) > 3, process)
    process.send_signal(signal.SIGINT)
    assert f"koopax train --resume {stopped}" in process.communicate()[1].decode()
    assert process.returncode == 130
    reached = max(json.loads((run / "config.json").read_text())["outcome"]["step"] for run in stopped.iterdir())
    done = koopax("train", "--resume", stopped, "--steps", reached + 10, cwd=folder)
    assert done.stdout.count(f"{reached + 10} steps") == 2
    errors = [
        json.loads(koopax("evaluate", f"runs/several/seed-{seed}", "--horizon", 5, "--json", cwd=folder).stdout)
        for seed in (2, 3)
    ]
    assert errors[0]["baselines"] == errors[1]["baselines"]
    assert errors[0]["state"] != errors[1]["state"]
    koopax(*settings, "--steps", 100, "--out", "runs/alone", cwd=folder)
    alone = json.loads(koopax("evaluate", "runs/alone", "--horizon", 5, "--json", cwd=folder).stdout)
    assert alone["state"]["normalised"] == pytest.approx(errors[0]["state"]["normalised"], rel=0.01)
    together = json.loads(koopax("evaluate", "runs/several", "--horizon", 5, "--json", cwd=folder).stdout)
    assert together["ensemble"]["members"] == 2
    assert together["baselines"] == errors[0]["baselines"]


def wait_for(condition, process):
    """However long it takes, unless the process ends before."""
    while not condition():
        assert process.poll() is None, "it ended too soon"
        time.sleep(0.05)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


# The command line itself, but Ctrl-C is pressed after a certain step, however fast or slow the machine is.
STOPPED = """
import os, signal
from koopax.cli import main
from koopax.training.record import Record
log = Record.log
def log_and_stop(self, step, sums):
    log(self, step, sums)
    if step == 20:
        os.kill(os.getpid(), signal.SIGINT)
Record.log = log_and_stop
main()
"""


def test_ctrl_c_and_resume_equal_a_run_that_never_stopped(folder):
    settings = (*TRAIN, "--steps", 60, "--checkpoint-every", 10)
    koopax(*settings, "--out", "runs/straight", cwd=folder)
    stopped = folder / "runs" / "stopped"
    command = [sys.executable, "-c", STOPPED, *map(str, settings), "--out", str(stopped)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert "koopax train --resume" in done.stderr
    assert done.returncode == 130
    assert json.loads((stopped / "config.json").read_text())["outcome"]["step"] == 20
    koopax("train", "--resume", stopped, cwd=folder)
    assert (stopped / "model.koopax").read_bytes() == (folder / "runs" / "straight" / "model.koopax").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train",), "needs a dataset"),
        (("train", "missing.csv"), "missing.csv"),
        (("train", "log.csv", "--model", "koopmann"), "unknown preset 'koopmann'"),
        (("train", "log.csv", *TABLE[:-2], "--reward", "money"), "money"),
        ((*TRAIN, "--horizon", 0), "horizon is 0"),
        ((*TRAIN, "--seeds", 0), "seeds is 0"),
        ((*TRAIN, "--horizon", 500), "longest of which"),
        ((*TRAIN, "--option", "spectrum"), "NAME=VALUE"),
        ((*TRAIN, "--option", "spectrum=rainbow"), "unknown spectrum 'rainbow'"),
        ((*TRAIN, "--latent-size", 15), "latent_size 15"),
        ((*TRAIN, "--option", "encoder_hidden=256"), "encoder_hidden is 256"),
        ((*TRAIN, "--steps", "None", "--latent-size", 15), "latent_size 15"),
        (("train", "--resume", "nowhere"), "not a run folder"),
        (("train", "--resume", "runs/a", "--model", "gru"), "leave out other options"),
        (("train", "--resume", "runs/a", "--horizon", 7), "was begun with 20"),
        (("evaluate", "runs/a", "--state", "angle"), "without a table"),
        (("evaluate", "nowhere"), "no run or model file"),
        (("evaluate", "log.csv"), "not a koopax model file"),
        (("data", "make", "koopax/ant/expert-v0"), "koopax/ant/expert-v0"),
        (("data", "inspect", "log.csv"), "(on the command line --episode)"),
        (("data", "inspect", "log.csv", *TABLE[:-2]), "or say `none`"),
        (("data", "collect", "--env", "NoSuch-v0"), "NoSuch-v0"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, run, refused, arguments, message):
    assert message in refused(folder, arguments)


def test_control_codes_do_not_reach_the_terminal(folder, refused):
    (folder / "codes.csv").write_text("trial,\x1b[31mangle\x07,torque\n" + "0,1,2\n" * 3)
    said = refused(folder, ("data", "inspect", "codes.csv", "--episode", "trial"))
    assert r"\x1b[31mangle\x07" in said
    assert "\x1b" not in said
    assert "\x07" not in said


def test_bad_input_in_a_process_of_its_own(folder):
    done = koopax("train", "missing.csv", cwd=folder, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: there is no file or folder 'missing.csv': check the path."
    assert "Traceback" not in done.stderr


def test_collect_and_convert(folder):
    koopax("data", "collect", "--env", "Pendulum-v1", "--steps", 400, "--out", "pendulum.npz", cwd=folder)
    koopax("data", "convert", "pendulum.npz", "pendulum.parquet", cwd=folder)
    one, two = (
        json.loads(koopax("data", "inspect", f"pendulum.{suffix}", "--json", cwd=folder).stdout)
        for suffix in ("npz", "parquet")
    )
    assert one["steps"] == two["steps"] == 400
    assert one["returns"] == two["returns"]


@pytest.mark.slow
def test_demo_at_a_small_size(folder, monkeypatch):
    monkeypatch.setenv("KOOPAX_DATA", str(folder / "data"))
    small = ("--steps", 4000, "--seconds", 1, "--horizon", 20)
    done = koopax("demo", *small, cwd=folder)
    assert "koopman" in done.stdout
    assert "mlp" in done.stdout
    assert Path(done.stdout.split("open in a browser: ")[1].strip()).stat().st_size > 100_000


@pytest.mark.slow
def test_a_demo_that_is_finished_trains_nothing_again(folder, monkeypatch):
    monkeypatch.setenv("KOOPAX_DATA", str(folder / "data"))
    small = ("--steps", 4000, "--seconds", 1, "--horizon", 20)
    koopax("demo", *small, cwd=folder)
    (finished,) = (folder / "demo").glob("*/koopman/metrics.jsonl")
    before = finished.read_text()
    koopax("demo", *small, cwd=folder)
    assert finished.read_text() == before


def test_a_name_that_is_too_long_is_one_sentence(refused, tmp_path):
    assert "too long" in refused(tmp_path, ["train", "[" * 5_000, "--out", "run"])
    assert "too long" in refused(tmp_path, ["evaluate", "x" * 300])


def test_the_kind_of_a_strangers_run_is_told_on_one_line(refused, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"format": 1, "kind": "two\\nlines"}')
    assert "of an agent (two lines)" in refused(tmp_path, ["evaluate", "run"])
