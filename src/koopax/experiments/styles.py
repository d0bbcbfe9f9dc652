"""What every figure draws a model with: colour, line and marker."""

from koopax._plots import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION

STYLES = {
    "koopman": (BLUE, "-", "o"),
    "koopman-paper": (SKY, "--", "P"),
    "gru": (ORANGE, "--", "s"),
    "mlp": (INK, ":", "^"),
    "transformer": (GREEN, "-.", "D"),
    "dssm": (PURPLE, (0, (5, 1, 1, 1, 1, 1)), "v"),
    "dmdc": (INK, (0, (1, 3)), "+"),
    "edmd": (ORANGE, (0, (1, 3)), "*"),
    "mlp@100": (VERMILION, ":", "x"),
}
