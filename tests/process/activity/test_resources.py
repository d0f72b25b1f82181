"""What a run uses is what its whole tree uses, wherever its processes have gone."""

from ralphd.process.activity.proc_stats import resources_of
from tests.helpers import eventually
from tests.players import player
from tests.process.runs import Stage, names

BURNS = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"


async def test_all_of_a_tree_is_counted_also_what_has_detached_itself(stage: Stage) -> None:
    run = await stage.spawn(player("family"))
    family = await names(run.directory, 6)
    used = resources_of({"demo": family["leader"]})["demo"]

    assert used["processes"] == 6
    assert used["rss_bytes"] > 6_000_000


async def test_processor_time_of_what_has_ended_already_is_counted(stage: Stage) -> None:
    script = f"(sh -c '{BURNS}; exit 0'); echo done $$; exec sleep 600"
    run = await stage.spawn(("sh", "-c", script))
    leader = (await names(run.directory, 1))["done"]

    assert resources_of({"demo": leader})["demo"]["cpu_s"] > 0.05


async def test_several_runs_are_told_apart_and_one_that_is_gone_is_left_out(stage: Stage) -> None:
    run = await stage.spawn(player("sleeper"))
    ended = await stage.spawn(player("exits", 0))
    gone = await ended.ended()
    record = await eventually(lambda: run.record, what="a record")
    assert record is not None and gone.code == 0 and ended.record is not None

    found = resources_of({"one": record.pid, "gone": ended.record.pid})

    assert list(found) == ["one"]
    assert found["one"]["processes"] == 1
