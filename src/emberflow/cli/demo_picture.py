"""The demo's picture: predictions for digits of the test, and the learning curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PAPER, INK, PALE = "#fbf7ef", "#2b2a33", "#b9b2a6"
EMBER, FLOW, WRONG = "#e4572e", "#2e86ab", "#d1102e"
GLOW = ("#17121f", "#4a1942", "#b8304f", "#f0743e", "#ffd98a")
ROWS, COLUMNS = 6, 8  # digits on the left side of the picture, each large enough to be read


class Curve(NamedTuple):
    """Losses, and the share of test digits that are right, after each epoch."""

    losses: Sequence[float]
    test_losses: Sequence[float]
    history: Sequence[float]


def draw(path: Path, images: Any, labels: Any, scores: Any, curve: Curve, title: str) -> None:
    """Write the picture to `path`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 8), facecolor=PAPER)  # not pyplot, which looks for a display
    figure.suptitle(title, x=0.035, y=0.965, ha="left", fontsize=20, fontweight="bold", color=INK)
    figure.text(
        0.035,
        0.895,
        "Each digit with the network's prediction and its probability. Errors are red; the hardest digits come last.",
        fontsize=11,
        color=INK,
        alpha=0.75,
    )
    left = figure.add_gridspec(
        ROWS, COLUMNS, left=0.035, right=0.60, top=0.86, bottom=0.04, hspace=0.45, wspace=0.2
    )
    for place, row in enumerate(pick(labels, scores, ROWS * COLUMNS)):
        _draw_digit(figure.add_subplot(left[place]), images[row], int(labels[row]), scores[row])
    right = figure.add_gridspec(2, 1, left=0.67, right=0.965, top=0.83, bottom=0.09, hspace=0.42)
    _draw_loss(figure.add_subplot(right[0]), curve)
    _draw_history(figure.add_subplot(right[1]), curve.history)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor=PAPER)


def pick(labels: Any, scores: Any, count: int) -> list[int]:
    """Return rows to show: some of every digit, then the hardest, with errors at the very end."""
    import numpy as np

    sure_of_truth = scores[np.arange(len(labels)), labels]
    hardest = list(np.argsort(sure_of_truth)[: count // 4][::-1])
    easy = [row for row in range(len(labels)) if row not in set(hardest)]
    by_digit = sorted(
        easy, key=lambda row: (sum(labels[r] == labels[row] for r in easy if r < row), labels[row])
    )
    return [int(row) for row in by_digit[: count - len(hardest)] + hardest]


def _draw_digit(axes: Any, image: Any, label: int, scores: Any) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    read = int(scores.argmax())
    right = read == label
    glow = LinearSegmentedColormap.from_list("glow", GLOW)
    axes.imshow(np.pad(image[..., 0], 1), cmap=glow, interpolation="bicubic", vmin=0, vmax=1)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color(GLOW[0] if right else WRONG)
        side.set_linewidth(0.8 if right else 3)
    text = f"{read}  {scores[read]:.0%}" if right else f"{read}?  it is {label}"
    colour, weight = (INK, "normal") if right else (WRONG, "bold")
    axes.set_xlabel(text, fontsize=11, labelpad=4, color=colour, fontweight=weight)


def _draw_loss(axes: Any, curve: Curve) -> None:
    epochs = range(1, len(curve.losses) + 1)
    both = (
        (curve.losses, EMBER, "training digits, with Dropout"),
        (curve.test_losses, FLOW, "test digits"),
    )
    for losses, colour, name in both:
        axes.plot(epochs, losses, color=colour, linewidth=2.5, marker="o", markersize=6, label=name)
    axes.legend(frameon=False, fontsize=10, labelcolor=INK)
    _style(axes, "Loss per epoch")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0.5, len(curve.losses) + 0.5)


def _draw_history(axes: Any, history: Sequence[float]) -> None:
    epochs = range(1, len(history) + 1)
    percent = [100 * share for share in history]
    axes.plot(epochs, percent, color=FLOW, linewidth=2.5, marker="o", markersize=6)
    axes.annotate(
        f"{history[-1]:.1%}",
        (len(history), percent[-1]),
        xytext=(0, -22),
        textcoords="offset points",
        ha="right",
        fontsize=15,
        fontweight="bold",
        color=FLOW,
    )
    _style(axes, "Test accuracy per epoch, in percent")
    axes.set_ylim(min(percent) - 4, 101)
    axes.set_xlim(0.5, len(history) + 0.5)


def _style(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, color=INK)
    axes.set_facecolor(PAPER)
    axes.grid(axis="y", color=PALE, alpha=0.4)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    for name, side in axes.spines.items():
        side.set_visible(name == "bottom")
        side.set_color(PALE)
