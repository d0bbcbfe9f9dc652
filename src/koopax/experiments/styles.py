"""What every figure draws a model with: colour, line and marker."""

from koopax._plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION

STYLES = {
    "koopman": (BLUE, "-", "o"),
    "koopman-paper": (SKY, "--", "P"),
    "gru": (ORANGE, "--", "s"),
    "mlp": (INK, ":", "^"),
    "transformer": (GREEN, "-.", "D"),
    "dssm": (PURPLE, (0, (5, 1, 1, 1, 1, 1)), "v"),
    "dmdc": (GREY, "-", "+"),
    "edmd": (GREY, (0, (4, 2)), "*"),
    "mlp@100": (VERMILION, ":", "x"),
}
