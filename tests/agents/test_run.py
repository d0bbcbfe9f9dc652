"""The folder that every agent's run is kept in: what it records, survives and refuses."""

import dataclasses
import json
import warnings
from typing import ClassVar

import numpy as np
import pytest

from koopax._checkpoint import Checkpoint, Checkpoints, read_checkpoint, restore_tree, tree_arrays
from koopax._errors import DivergedError, KoopaxError, KoopaxWarning
from koopax.agents.config import AgentConfig
from koopax.agents.run import AgentRun, check_finite, load_checkpoint, read_config
from koopax.training.metrics import read_json_lines


@dataclasses.dataclass(frozen=True)
class WalkConfig(AgentConfig):
    """Settings of an agent that walks at random."""

    kind: ClassVar[str] = "walk"
    changeable: ClassVar[tuple[str, ...]] = ("steps",)

    steps: int = 10
    stride: float = 0.5
    sizes: tuple[int, ...] = (3,)

    @property
    def environment(self) -> str:
        return "a line"


@dataclasses.dataclass(frozen=True)
class OtherConfig(WalkConfig):
    kind: ClassVar[str] = "other"


class Walk:
    """The smallest agent: a position, moved by noise that depends on the step only."""

    def start(self):
        self.position = np.zeros(3)

    def save(self):
        return Checkpoint({"place": "line"}, {"position": self.position})

    def restore(self, checkpoint):
        if checkpoint.header["place"] != "line":
            raise ValueError("it is from elsewhere")
        self.position = checkpoint.arrays["position"]


def walk(config, folder, *, resume=False, watch=None, until=None):
    """Train the agent; `until` is where the process is killed."""
    run, training = AgentRun(folder, config, resume=resume, watch=watch), Walk()
    with run.begin(training):
        while run.progress.environment_steps < config.steps:
            step = run.progress.environment_steps
            if step == until:
                raise SystemExit(9)
            training.position = training.position + config.stride * np.random.default_rng(step).normal(size=3)
            run.progress.environment_steps += 1
            run.write(evaluation_return=float(training.position.sum()))
            run.save(training)
    return run.result(), training.position


def timeless(lines):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def damage(path, byte=-200):
    content = bytearray(path.read_bytes())
    content[byte] ^= 0xFF
    path.write_bytes(bytes(content))


def newest(folder):
    return sorted((folder / "checkpoints").iterdir())[-1]


def test_the_folder_records_what_ran_and_how_it_ended(tmp_path):
    result, _ = walk(WalkConfig(), tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    assert (document["format"], document["kind"], document["task"]) == (1, "walk", "a line")
    assert document["agent"] == {"steps": 10, "stride": 0.5, "sizes": [3]}
    assert {"versions", "commit", "machine"} <= document.keys()
    assert document["outcome"]["stopped"] == "finished"
    assert document["outcome"]["environment_steps"] == 10
    assert read_config(tmp_path, WalkConfig) == WalkConfig()
    assert all(list(line)[:4] == ["environment_steps", "decisions", "updates", "seconds"] for line in result.metrics)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_killed_and_resumed_it_is_the_same_run(tmp_path):
    whole, position = walk(WalkConfig(), tmp_path / "whole")
    with pytest.raises(SystemExit):
        walk(WalkConfig(), tmp_path / "parts", until=4)
    assert "outcome" not in json.loads((tmp_path / "parts" / "config.json").read_text())
    # A line that the checkpoint does not know of, as a crash between the two would leave it.
    with open(tmp_path / "parts" / "metrics.jsonl", "a") as file:
        file.write('{"environment_steps": 5}\n{"environ')
    parts, again = walk(WalkConfig(), tmp_path / "parts", resume=True)
    np.testing.assert_array_equal(position, again)
    assert timeless(parts.metrics) == timeless(whole.metrics)


@pytest.mark.parametrize("resume", [False, True])
def test_killed_before_the_first_checkpoint_it_begins_again(tmp_path, resume):
    with pytest.raises(SystemExit):
        walk(WalkConfig(), tmp_path, until=0)
    assert (tmp_path / "config.json").exists()
    assert len(walk(WalkConfig(), tmp_path, resume=resume)[0].metrics) == 10


@pytest.mark.parametrize("how", ["cut", "changed", "empty"])
def test_a_damaged_checkpoint_is_found_and_the_one_before_it_used(tmp_path, how):
    whole, position = walk(WalkConfig(), tmp_path / "whole")
    walk(WalkConfig(steps=6), tmp_path / "parts")
    path = newest(tmp_path / "parts")
    if how == "changed":
        damage(path, path.read_bytes().index(load_checkpoint(tmp_path / "parts").arrays["position"].tobytes()))
    else:
        path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2 if how == "cut" else 0])
    with pytest.warns(KoopaxWarning, match=r"000006\.npz' is damaged .* The one before it is used"):
        parts, again = walk(WalkConfig(), tmp_path / "parts", resume=True)
    np.testing.assert_array_equal(position, again)
    assert timeless(parts.metrics) == timeless(whole.metrics)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_checkpoint(tmp_path / "parts")


@pytest.mark.parametrize("spoilt", [{}, {"progress": 3, "size": 0}, {"place": "sea"}, {"size": -1}, {"size": "x"}])
def test_a_whole_checkpoint_of_something_else_gives_way_to_the_one_before(tmp_path, spoilt):
    whole, position = walk(WalkConfig(), tmp_path / "whole")
    with pytest.raises(SystemExit):
        walk(WalkConfig(), tmp_path / "run", until=6)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    found = checkpoints.load()
    header = {**found.header, **spoilt} if spoilt else {}
    checkpoints.save(Checkpoint(header, found.arrays), checkpoints.last)
    with pytest.warns(KoopaxWarning, match=r"is not of this run \(.*The one before it is used"):
        again, found = walk(WalkConfig(), tmp_path / "run", resume=True)
    np.testing.assert_array_equal(position, found)
    assert timeless(again.metrics) == timeless(whole.metrics)


def test_two_damaged_checkpoints_are_one_sentence(tmp_path):
    walk(WalkConfig(), tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(b"nothing")
    with pytest.raises(KoopaxError, match=r"no checkpoint .* is whole") as caught:
        walk(WalkConfig(steps=12), tmp_path, resume=True)
    assert "\n" not in str(caught.value)


def test_the_digest_finds_what_a_zip_file_does_not(tmp_path):
    """A whole file, written by others, whose array is not the one that the header lists."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(Checkpoint({"a": 1}, {"x": np.arange(3), "empty": np.zeros((0, 2)), "scalar": np.array(2)}))
    (path,) = tmp_path.iterdir()
    assert read_checkpoint(path).header == {"a": 1}
    with np.load(path) as file:
        arrays = dict(file) | {"x": np.arange(3)[::-1]}
    np.savez(path, **arrays)
    with pytest.raises(KoopaxError, match="x differs from its digest"):
        read_checkpoint(path)
    np.savez(path, **arrays | {"header": np.array('{"arrays": {}}')})
    with pytest.raises(KoopaxError, match="header differs from its digest"):
        read_checkpoint(path)


def test_a_checkpoint_that_holds_code_is_not_run(tmp_path):
    np.savez(tmp_path / "000001.npz", header=np.array([print], dtype=object))
    with pytest.raises(KoopaxError, match="is damaged"):
        read_checkpoint(tmp_path / "000001.npz")


def test_a_damaged_line_does_not_lose_the_others(tmp_path):
    walk(WalkConfig(), tmp_path)
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = lines[3][:10]
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    assert [line["environment_steps"] for line in read_json_lines(path)] == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    resumed, _ = walk(WalkConfig(steps=12), tmp_path, resume=True)
    assert [line["environment_steps"] for line in resumed.metrics] == [1, 2, 3, *range(5, 13)]


def test_what_differs_is_named(tmp_path):
    walk(WalkConfig(), tmp_path)
    with pytest.raises(KoopaxError, match=r"stride is 1\.0 but .* was trained with 0\.5; resume with that"):
        walk(WalkConfig(stride=1.0), tmp_path, resume=True)
    with pytest.raises(KoopaxError, match="already holds a run"):
        walk(WalkConfig(), tmp_path)
    with pytest.raises(KoopaxError, match="of kind 'walk', not 'other'"):
        walk(OtherConfig(), tmp_path, resume=True)
    with pytest.raises(KoopaxError, match="there is no run"):
        walk(WalkConfig(), tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    text = json.dumps({"format": 1, "train": {}, "model": {}})
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(KoopaxError, match="already holds a run"):
        walk(WalkConfig(), tmp_path)
    with pytest.raises(KoopaxError, match="of kind 'model'"):
        walk(WalkConfig(), tmp_path, resume=True)
    assert (tmp_path / "config.json").read_text() == text


@pytest.mark.parametrize(
    "document", [{"critic_norm": "batch", "env": "Hopper-v5"}, {"agent": "tdmpc", "config": {"task": "cheetah-run"}}]
)
def test_a_run_of_before_is_not_resumed(tmp_path, document):
    (tmp_path / "config.json").write_text(json.dumps(document))
    (tmp_path / "checkpoint.npz").write_bytes(b"")
    with pytest.raises(KoopaxError, match="begun by an older koopax"):
        walk(WalkConfig(), tmp_path, resume=True)
    with pytest.raises(KoopaxError, match="already holds a run"):
        walk(WalkConfig(), tmp_path)


def test_two_do_not_train_in_one_folder(tmp_path):
    run, training = AgentRun(tmp_path, WalkConfig(), resume=False), Walk()
    with run.begin(training):
        for resume in (False, True):
            with pytest.raises(KoopaxError, match="is being written by another process: wait for its end"):
                walk(WalkConfig(), tmp_path, resume=resume)
        run.write(evaluation_return=1.0)
        run.save(training)
    assert len(walk(WalkConfig(), tmp_path, resume=True)[0].metrics) == 11


def test_divergence_is_recorded(tmp_path):
    with (
        pytest.raises(DivergedError, match="loss is nan after 7 updates"),
        AgentRun(tmp_path, WalkConfig(), resume=False).begin(Walk()),
    ):
        check_finite({"q": 1.0, "loss": float("nan")}, 7)
    assert json.loads((tmp_path / "config.json").read_text())["outcome"]["stopped"] == "diverged"


def test_whoever_watches_sees_every_line(tmp_path):
    seen = []
    result, _ = walk(WalkConfig(), tmp_path, watch=seen.append)
    assert seen == [{"step": line["environment_steps"], **line} for line in result.metrics]


def test_a_tree_survives_and_another_shape_is_refused():
    tree = {"a": np.arange(6.0).reshape(2, 3), "b": (np.array(1), np.zeros(0))}
    arrays = tree_arrays("tree", tree)
    again = restore_tree("tree", tree, arrays)
    np.testing.assert_array_equal(again["a"], tree["a"])
    with pytest.raises(KoopaxError, match="it was written by another model"):
        restore_tree("tree", {**tree, "a": np.zeros((3, 3))}, arrays)
