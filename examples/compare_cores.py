"""Train every latent core on the same data for the same number of steps, and compare what they predict.

The data is Gymnasium's pendulum under random torques. Run: python examples/compare_cores.py
"""

import argparse

import jax

import koopax
from koopax.collection import collect

# Sizes that give each core about the same number of parameters.
CORES = {
    "koopman": {"latent_size": 128, "encoder_hidden": (128,), "decoder_hidden": (128,)},
    "mlp": {
        "latent_size": 64,
        "hidden": 160,
        "encoder_hidden": (128,),
        "decoder_hidden": (128,),
        "reward_hidden": (64,),
    },
    "gru": {"latent_size": 72, "encoder_hidden": (128,), "decoder_hidden": (128,), "reward_hidden": (64,)},
    "transformer": {
        "latent_size": 32,
        "layers": 2,
        "feedforward": 128,
        "encoder_hidden": (128,),
        "decoder_hidden": (128,),
    },
    "dssm": {"latent_size": 48, "layers": 2, "state_size": 16, "encoder_hidden": (128,), "decoder_hidden": (128,)},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", nargs="+", default=list(CORES), choices=CORES)
    parser.add_argument("--quick", action="store_true", help="a few steps only, to see that it runs")
    arguments = parser.parse_args()
    quick = arguments.quick

    data = collect("Pendulum-v1", "random", steps=1000 if quick else 20_000, seed=0)
    train, test = data.split(0.8, seed=0)
    horizon, steps = (10, 2) if quick else (50, 1000)
    print(f"{'core':12} {'parameters':>10} {'seconds':>8} {'state error':>12} {'at the end':>11}")
    for core in arguments.cores:
        model = koopax.DynamicsModel.create(core, train, key=jax.random.key(0), **CORES[core])
        run = koopax.fit(model, train, horizon=horizon, steps=steps, batch_size=4 if quick else 32, seed=0)
        error = koopax.prediction_error(run.model, test, horizon=horizon, windows=50 if quick else 1000).state
        size = model.num_parameters()
        print(f"{core:12} {size:10} {run.seconds:8.1f} {error.normalised:12.4f} {error.per_step[-1]:11.4f}")
    print(f"mean squared errors over {horizon} steps; 1 is the error of predicting the mean")


if __name__ == "__main__":
    main()
