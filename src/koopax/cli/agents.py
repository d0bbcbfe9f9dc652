"""koopax agent …"""

from pathlib import Path

import tyro

from koopax.cli.output import results

app = tyro.extras.SubcommandApp()
train = tyro.extras.SubcommandApp()
app.command(train, name="train", help="Train an agent in an environment.")


@train.command
def sac(
    *,
    task: str = "HalfCheetah-v5",
    out: Path,
    steps: int = 1_000_000,
    seed: int = 0,
    resume: bool = False,
) -> None:
    """Soft Actor-Critic from states, with batch-normalised critics.

    Args:
        task: a Gymnasium id, a dm_control id or a DMC task such as cheetah-run.
        out: folder for the curve, checkpoints and policy snapshots.
        steps: environment steps.
        seed: of everything random.
        resume: continue the run in `out`.
    """
    from koopax.agents.sac import SACConfig
    from koopax.agents.sac import train as train_sac

    train_sac(SACConfig(env=task, seed=seed, steps=steps), out, resume=resume)
    results().print(f"{out}: finished", highlight=False)


@app.command(name="export-experts")
def export_experts(run: tyro.conf.Positional[Path], name: tyro.conf.Positional[str]) -> None:
    """Choose expert, medium and ladder policies from a SAC run, measure each, and write weights and results.

    Args:
        run: the folder of a SAC run with snapshots.
        name: what the policies are called, such as hopper.
    """
    from koopax.agents.sac.experts import export_experts as export

    export(run, name)
