"""Swing up Gymnasium's pendulum by planning with a model that was learned from random actions.

Collects, trains, plans; about a minute or two on one core. Run: python examples/pendulum_mpc.py
"""

import argparse

import jax

import koopax
from koopax.collection import collect
from koopax.planning import control_trained

ENVIRONMENT = "Pendulum-v1"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planner", default="icem", help="icem, cem, mppi or gradient")
    parser.add_argument("--quick", action="store_true", help="a few steps only, to see that it runs")
    arguments = parser.parse_args()
    quick = arguments.quick

    data = collect(ENVIRONMENT, "random", steps=600 if quick else 20_000, seed=0)
    print(f"mean return of random actions: {data.returns.mean():.0f}")
    train, test = data.split(0.8, seed=0)
    model = koopax.DynamicsModel.create(
        "koopman", train, latent_size=64, encoder_hidden=(128,), decoder_hidden=(128,), key=jax.random.key(0)
    )
    run = koopax.fit(
        model,
        train,
        horizon=20,
        steps=3 if quick else 1500,
        batch_size=4 if quick else 64,
        consistency_weight=0,
        seed=0,
    )
    error = koopax.prediction_error(run.model, test, horizon=20, windows=50 if quick else 1000)
    print(f"normalised state error over 20 steps: {error.state.normalised:.4f}")

    # The search asks for actions unlike those in the data: re-encoding keeps its latents where the encoder puts states.
    found = control_trained(
        run.model,
        ENVIRONMENT,
        planner=arguments.planner,
        episodes=1 if quick else 10,
        seed=0,
        reencode_every=4,
        horizon=4 if quick else 20,
        samples=8 if quick else 64,
        iterations=1 if quick else 3,
    )
    print(f"mean return of planning: {found.mean_return:.0f}, {found.ms_per_decision:.1f} ms per decision")


if __name__ == "__main__":
    main()
