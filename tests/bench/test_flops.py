"""The formulas against two counts of the real thing: every product in the traced gradient, and XLA's own estimate."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import partial_eval

from koopax import DynamicsModel, Episodes
from koopax.bench.flops import core_flops, training_flops
from koopax.bench.paper_listing import paper_listing_model
from koopax.data.windows import Windows
from koopax.models.latent import CORES, LatentDynamics
from koopax.training.config import TrainConfig
from koopax.training.losses import CONSISTENCY_EVERY, loss_terms, total_loss

BATCH = 16
# A regression is not trained by gradients, unless somebody asks for it.
NAMES = [*(name for name in CORES if name != "linear"), "piloted", "paper-listing"]


@pytest.fixture(scope="module")
def models():
    """Models with real widths, but without a number in them: nothing is compiled here."""
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays([rng.normal(size=(21, 17))], [rng.normal(size=(20, 6))], [rng.normal(size=20)])

    def build(name, key):
        if name == "paper-listing":
            return paper_listing_model(data, key=key)
        if name == "piloted":  # wide, so that it counts
            return DynamicsModel.create("koopman", data, latent_size=64, decoder_hidden=(), pilot_modes=128, key=key)
        return DynamicsModel.create(name, data, key=key)

    return {name: eqx.filter_eval_shape(build, name, jax.random.key(0)) for name in NAMES}


def gradient(model, horizon, **settings):
    """The gradient of the training loss, as a function of arrays, and their shapes."""
    config = TrainConfig(horizon=horizon, batch_size=BATCH, **settings)
    arrays, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def shape(*sizes):
        return jax.ShapeDtypeStruct(sizes, jnp.float32)

    windows = Windows(shape(horizon + 1, BATCH, 17), shape(horizon, BATCH, 6), shape(horizon, BATCH), None)

    def function(arrays, windows, key):
        model = eqx.combine(arrays, static)
        parameters, rest = eqx.partition(model, model.trainable())

        def loss(parameters):
            return total_loss(loss_terms(eqx.combine(parameters, rest), windows, config, key=key), config)

        return jax.grad(loss)(parameters)

    return function, (arrays, windows, jax.eval_shape(lambda: jax.random.key(0)))


def products(jaxpr, times=1):
    """Operations of every `dot_general`, those of loops as often as they run."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, out = equation.invars[0].aval, equation.outvars[0].aval
            each = 8 if jnp.iscomplexobj(out) else 2
            total += times * each * out.size * int(np.prod([left.shape[axis] for axis in contracted]))
        inner = times * equation.params.get("length", 1) if equation.primitive.name == "scan" else times
        if equation.primitive.name == "cond":  # an estimate of the consistency loss, in some of the steps
            total += sum(products(branch.jaxpr, inner) for branch in equation.params["branches"]) / CONSISTENCY_EVERY
        for parameter in equation.params.values():
            closed = getattr(parameter, "jaxpr", parameter)
            if hasattr(closed, "eqns"):
                total += products(closed, inner)
    return total


@pytest.mark.parametrize(
    ("name", "reward", "stride"),
    [
        *((name, reward, 1) for name in NAMES for reward in (True, False)),
        ("koopman", True, 3),
        ("piloted", True, 3),
        ("gru", False, 3),
    ],
)
def test_products_are_those_of_the_traced_gradient(models, name, reward, stride):
    horizon = 12
    function, arguments = gradient(models[name], horizon, reward_weight=float(reward), loss_stride=stride)
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    # As a compiler would: what no output needs is not counted.
    jaxpr, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    sizes = {"horizon": horizon, "batch_size": BATCH, "consistency_steps": 4, "loss_stride": stride}
    expected = training_flops(models[name], reward=reward, **sizes)
    assert products(jaxpr) == pytest.approx(expected.products, rel=0.03)


@pytest.mark.parametrize(
    ("name", "horizon"), [("koopman", 1), ("mlp", 1), ("gru", 1), ("transformer", 16), ("dssm", 8)]
)
def test_the_total_is_near_what_xla_estimates(models, name, horizon):
    """XLA looks into a loop once, so those cores that loop do a single step."""
    function, arguments = gradient(models[name], horizon, consistency_steps=None)
    estimate = jax.jit(function).lower(*arguments).cost_analysis()["flops"]
    expected = training_flops(models[name], horizon=horizon, batch_size=BATCH, consistency_steps=None, reward=True)
    assert expected.total == pytest.approx(estimate, rel=0.1)


@pytest.mark.parametrize("name", ["koopman", "mlp", "gru"])
def test_sequential_work_is_proportional_to_the_horizon(models, name):
    def operations(horizon):
        return core_flops(models[name].core, horizon, 8).total

    assert operations(200) == pytest.approx(2 * operations(100))


def test_a_core_without_a_formula_says_so():
    class Stranger(LatentDynamics):
        latent_size: int = 4
        action_size: int = 1

        def rollout(self, latent, actions, durations=None):
            return latent

        def step(self, latent, action, duration=None):
            return latent

    with pytest.raises(NotImplementedError, match="Stranger have no formula"):
        core_flops(Stranger(), 10, 1)
