"""What figures have in common."""

from matplotlib.figure import Figure

from koopax._plots import legend_of


def test_a_legend_names_what_any_panel_shows_once():
    panels = Figure().subplots(1, 3)
    for panel, labels in zip(panels, (["c"], ["b", "c"], ["d", "a"]), strict=True):
        for label in labels:
            panel.plot([0, 1], label=label)
    handles, labels = legend_of(panels, ["a", "absent", "b"])
    assert labels[:2] == ["a", "b"]
    assert sorted(labels[2:]) == ["c", "d"]
    assert [handle.get_label() for handle in handles] == labels
