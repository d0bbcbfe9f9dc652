"""koopax bench …"""

import tyro

from koopax.cli.bench_agents import export, pixels, plan, qp, sac, simulator
from koopax.cli.bench_models import data, gains, recurrence, rollout, speed, start
from koopax.cli.bench_scaling import disk, hosts

app = tyro.extras.SubcommandApp()
for command in (
    recurrence,
    speed,
    rollout,
    plan,
    qp,
    data,
    gains,
    sac,
    pixels,
    start,
    simulator,
    export,
    disk,
    hosts,
):
    app.command(command)
