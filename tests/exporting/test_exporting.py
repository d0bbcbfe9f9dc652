"""Exported files are run by what they are made for, and equal the model."""

import json
import shutil
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import koopax
from koopax.exporting.functions import Function
from koopax.exporting.program import trace

HORIZON = 7
SMALL = {"encoder_hidden": (8,), "decoder_hidden": (8,), "latent_size": 6}
KOOPMAN = {**SMALL, "action_embedding": 3, "action_hidden": (5,)}
MODELS = {
    "koopman": ("koopman", KOOPMAN),
    "koopman with a history": ("koopman", {**KOOPMAN, "action_history": 3, "pilot_modes": 2, "reencode_every": 4}),
    "bilinear": ("koopman", {**KOOPMAN, "bilinear": True, "adaptive": True, "context_size": 2, "reward_hidden": (4,)}),
    "mlp": ("mlp", {**SMALL, "hidden": 7, "activation": "elu"}),
    "gru": ("gru", {**SMALL, "reencode_every": 1}),
    "dssm": ("dssm", {**SMALL, "layers": 1, "state_size": 4}),
    "dmdc": ("dmdc", {}),
    "edmd": ("edmd", {"encoder_options": {"degree": 3}, "reencode_every": 1}),
    "fourier": ("edmd", {"encoder": "fourier", "encoder_options": {"count": 5}}),
}
TRANSFORMER = ("transformer", {**SMALL, "latent_size": 8, "layers": 1, "heads": 2, "context": 4, "feedforward": 8})


def make_model(core, options):
    """A model whose every parameter matters."""
    random = np.random.default_rng(0)
    data = koopax.Episodes.from_arrays(
        [5 + 3 * random.normal(size=(31, 3)) for _ in range(3)],
        [random.normal(size=(30, 2)) for _ in range(3)],
        [10 * random.normal(size=30) for _ in range(3)],
    )
    model = koopax.DynamicsModel.create(core, data, key=jax.random.key(0), **options)
    trained, fixed = eqx.partition(model, model.trainable())
    leaves, structure = jax.tree.flatten(trained)
    moved = [leaf + np.float32(0.2) * random.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(structure, moved), fixed)


# Each compiles its own programs: those that the others hold nothing of are quick.
QUICK = ("koopman with a history", "bilinear", "gru", "dssm", "edmd")


@pytest.fixture(
    scope="module", params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def case(request):
    """A model, a start, actions, and what the model makes of them."""
    model = make_model(*MODELS[request.param])
    random = np.random.default_rng(1)
    state = (5 + 3 * random.normal(size=3)).astype(np.float32)
    actions = random.normal(size=(HORIZON, 2)).astype(np.float32)
    return model, state, actions, model.rollout(state, actions)


def assert_equal(states, rewards, prediction):
    """To 1e-5 of the numbers' own size."""
    for found, wanted in ((states, prediction.states), (rewards, prediction.rewards)):
        scale = 1 + np.abs(wanted).max()
        np.testing.assert_allclose(np.asarray(found) / scale, np.asarray(wanted) / scale, atol=1e-5)


@pytest.mark.quick("^koopman$|^mlp$")
def test_onnx_equals_the_model(case, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model, state, actions, prediction = case
    exported = koopax.export(model, "onnx", tmp_path, horizon=HORIZON)
    assert exported.files == ["encode.onnx", "step.onnx", "rollout.onnx", "export.json"]
    encode, step, rollout = (runtime.InferenceSession(str(tmp_path / name)) for name in exported.files[:3])
    assert_equal(*rollout.run(["states", "rewards"], {"state": state, "actions": actions}), prediction)
    (latent,) = encode.run(["latent"], {"state": state})
    states, rewards = [], []
    for action in actions:
        latent, *found = step.run(["next_latent", "state", "reward"], {"latent": latent, "action": action})
        states.append(found[0])
        rewards.append(found[1])
    assert_equal(np.array(states), np.array(rewards), prediction)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_c_equals_the_model(case, tmp_path):
    model, state, actions, prediction = case
    exported = koopax.export(model, "c", tmp_path, horizon=HORIZON, name="plant")
    assert exported.files == ["plant.h", "example.c", "export.json"]
    flags = ["-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic", "-O1"]
    subprocess.run(["gcc", *flags, "example.c", "-o", "example", "-lm"], cwd=tmp_path, check=True)
    given = " ".join(map(str, [*state, *actions.ravel()]))
    written = subprocess.run([tmp_path / "example"], input=given, capture_output=True, text=True, check=True).stdout
    found = np.array([line.split() for line in written.splitlines()], float)
    assert_equal(found[:, :-1], found[:, -1], prediction)
    header = (tmp_path / "plant.h").read_text()
    assert "malloc" not in header
    assert exported.document["memory"]["constants"] >= 4 * 10
    timed = subprocess.run([tmp_path / "example", "3"], capture_output=True, text=True, check=True).stdout
    assert "microseconds per step" in timed


ALONE = """
import json, sys
import numpy as np
from jax import export
folder, given = sys.argv[1], json.loads(sys.argv[2])
found = {}
for name, (state, actions) in given.items():
    state, actions = np.array(state, np.float32), np.array(actions, np.float32)
    encode, step, rollout = (
        export.deserialize(bytearray(open(f"{folder}/{name}/{part}.stablehlo", "rb").read()))
        for part in ("encode", "step", "rollout")
    )
    rolled = rollout.call(state, actions)
    first = step.call(encode.call(state)["latent"], actions[0])
    found[name] = [rolled["states"].tolist(), rolled["rewards"].tolist(), first["state"].tolist()]
assert not {"koopax", "equinox"} & set(sys.modules)
print(json.dumps(found))
"""


def test_stablehlo_runs_with_jax_alone(tmp_path):
    """In one fresh process, without koopax on its path; also the Transformer, whose state is its memory."""
    random = np.random.default_rng(1)
    models = {
        name: make_model(*MODELS[name]) if name in MODELS else make_model(*TRANSFORMER)
        for name in ("koopman with a history", "dssm", "transformer")
    }
    given = {name: ((5 + random.normal(size=3)).tolist(), random.normal(size=(HORIZON, 2)).tolist()) for name in models}
    for name, model in models.items():
        exported = koopax.export(model, "stablehlo", tmp_path / name, horizon=HORIZON)
        assert {"encode.stablehlo", "step.stablehlo", "rollout.stablehlo", "step.mlir"} < set(exported.files)
        assert "stablehlo.dot_general" in (tmp_path / name / "step.mlir").read_text()
    command = [sys.executable, "-c", ALONE, str(tmp_path), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env={"PYTHONPATH": ""})
    for name, (states, rewards, first) in json.loads(done.stdout).items():
        prediction = models[name].rollout(*map(np.float32, given[name]))
        assert_equal(np.array(states), np.array(rewards), prediction)
        np.testing.assert_allclose(first, prediction.states[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["onnx", "c"])
def test_a_memory_that_is_a_ring_is_refused_in_one_sentence(form, tmp_path):
    with pytest.raises(
        koopax.KoopaxError, match=r"can't be exported to (ONNX|C), as it uses .*: use --to stablehlo\.$"
    ):
        koopax.export(make_model(*TRANSFORMER), form, tmp_path / "files")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"to": "onx"}, "unknown form of an exported model 'onx': did you mean 'onnx'"),
        ({"horizon": 0}, "a rollout of 0 steps can't be exported"),
        ({"name": "My model"}, "'My model' is no name for C"),
    ],
)
def test_bad_input(changes, message, tmp_path):
    with pytest.raises(koopax.KoopaxError, match=message):
        koopax.export(make_model("dmdc", {}), **{"to": "c", "out": tmp_path, **changes})


def strange(state):
    """Every kind of operation at once, with runtime operands where a model has parameters."""
    square = state.reshape(2, 3) * jnp.arange(3.0)
    turned = jnp.einsum("ij,kj->ki", square, jnp.flip(square, 0) + 1)
    chosen = state[np.array([5, 0, 0, 3])]
    padded = jnp.pad(square.T, ((0, 1), (1, 0)), constant_values=2.0)
    branches = jnp.where(state > 0.1, jnp.expm1(state), jax.nn.gelu(state, approximate=False))
    return {
        "sums": jnp.concatenate([turned.ravel(), chosen, padded.ravel(), branches, jnp.clip(state, -0.2, 0.3)]),
        "least": jnp.stack([square.min(), square.max(0)[1], (square**-2).sum(1)[0], jnp.sign(state[2])]),
    }


def test_every_kind_of_operation_in_onnx_and_c(tmp_path):
    from koopax.exporting.c_body import FunctionWriter
    from koopax.exporting.c_formulas import Constants
    from koopax.exporting.onnx_file import _onnx, _plain

    runtime = pytest.importorskip("onnxruntime")
    state = np.array([0.5, -0.25, 0.125, 1.5, -2.0, 0.75], np.float32)
    wanted = strange(state)
    program = trace(Function("strange", strange, {"state": (6,)}, ("sums", "least")), "C")
    model = _onnx().helper.make_model(
        _plain(program), opset_imports=[_onnx().helper.make_opsetid("", 17)], ir_version=8
    )
    found = runtime.InferenceSession(model.SerializeToString()).run(["sums", "least"], {"state": state})
    np.testing.assert_allclose(found[0], wanted["sums"], atol=1e-5)
    np.testing.assert_allclose(found[1], wanted["least"], atol=1e-5)

    constants = Constants("strange")
    body = FunctionWriter(program, constants).body()
    count = wanted["sums"].size
    (tmp_path / "strange.c").write_text(
        f"#include <math.h>\n#include <stdio.h>\n{constants.text()}\n"
        f"int main(void) {{ float state[6], sums[{count}], least[4];\n"
        'for (int i = 0; i < 6; i++) if (scanf("%f", state + i) != 1) return 1;\n'
        f'{body}\nfor (int i = 0; i < {count}; i++) printf("%.9g\\n", sums[i]);\n'
        'for (int i = 0; i < 4; i++) printf("%.9g\\n", least[i]);\nreturn 0; }\n'
    )
    build = ["gcc", "-Wall", "-Werror", "-std=c99", "strange.c", "-o", "strange", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    given = " ".join(map(str, state))
    done = subprocess.run([tmp_path / "strange"], input=given, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(np.array(done.stdout.split(), float), np.concatenate(list(wanted.values())), atol=1e-5)
