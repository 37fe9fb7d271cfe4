"""`tussock branch`, and the option --branch of other commands."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append, epoch, new_store
from tussock.jobs.cli import main
from tussock.jobs.driver.run_record import record_failure
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateTable, CreateView, Drop
from tussock.jobs.session import Session
from tussock.jobs.settings.branches import branch_address
from tussock.jobs.settings.home import BranchWritesOutsideError, home_of
from tussock.jobs.settings.process import open_meta
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.errors import BranchGoneError
from tussock.statestore.objectstore.open import open_object_store


@pytest.fixture
def store(tmp_path: Path) -> str:
    meta = new_store(tmp_path / "store")
    append(meta, CreateTable("orders", (Field("id", "int"), Field("n", "int")), (0,)))
    meta.publish(epoch(meta).epoch)
    add_rows(str(tmp_path / "store"), 1)
    return str(tmp_path / "store")


def add_rows(store: str, *ids: int) -> None:
    with Session(store, create=False, runner="local", workers=1) as session:
        session.insert("orders", pa.table({"id": pa.array(ids, pa.int32()), "n": pa.array(ids, pa.int32())}))
        session.flush()


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    done = main(arguments)
    captured = capsys.readouterr()
    assert done == code, captured.err
    return captured.out + captured.err


def ids_in(capsys: pytest.CaptureFixture[str], *where: str) -> list[str]:
    return sorted(run(capsys, "read", *where, "orders", "--columns", "id", "--csv").split()[1:])


def make_pipeline(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline `shop` over the store."""
    folder = tmp_path / "pipelines" / "shop"
    folder.mkdir(parents=True)
    toml = f'name = "shop"\nstore = "{store}"\nsql = ["views.sql"]\n[epoch]\nrunner = "auto"\n'
    (folder / "pipeline.toml").write_text(toml)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder.parent))


def test_a_branch_and_its_parent_go_on_alone(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "begins at epoch" in run(capsys, "branch", "create", "--store", store, "pr-1", "--own")
    add_rows(branch_address(store, "pr-1"), 2, 3)
    add_rows(store, 4)
    assert ids_in(capsys, "--store", store) == ["1", "4"]
    assert ids_in(capsys, "--store", store, "--branch", "pr-1") == ["1", "2", "3"]
    (line,) = run(capsys, "branch", "list", "--store", store).splitlines()[1:]
    assert (line.split()[0], line.split()[2]) == ("pr-1", "1")
    for command in ("compact", "vacuum", "status", "scrub"):
        run(capsys, command, "--store", store, "--branch", "pr-1")
        run(capsys, command, "--store", store)
    assert ids_in(capsys, "--store", store, "--branch", "pr-1") == ["1", "2", "3"]
    assert ids_in(capsys, "--store", store) == ["1", "4"]


def test_an_epoch_of_a_branch_takes_the_epochs_of_its_parent(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline(store, tmp_path, monkeypatch)
    run(capsys, "branch", "create", "shop", "pr-1")
    add_rows(store, 2)
    add_rows(store, 3)
    assert ids_in(capsys, "--store", store, "--branch", "pr-1") == ["1"]
    assert run(capsys, "branch", "list", "--store", store).splitlines()[1].split()[2] == "2"
    run(capsys, "epoch", "--pipeline", "shop", "--branch", "pr-1")
    assert ids_in(capsys, "--store", store, "--branch", "pr-1") == ["1", "2", "3"]
    assert run(capsys, "branch", "list", "--store", store).splitlines()[1].split()[2] == "0"
    assert "no new input" in run(capsys, "epoch", "--pipeline", "shop", "--branch", "pr-1")


def test_the_variable_names_the_branch_of_a_command_without_the_option(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "branch", "create", "--store", store, "pr-1")
    add_rows(store, 4)
    monkeypatch.setenv("TUSSOCK_BRANCH", "pr-1")
    assert ids_in(capsys, "--store", store) == ["1"]
    assert "pr-1" in run(capsys, "branch", "list", "--store", store)


def test_an_ended_branch_is_an_error_that_says_how_to_create_it_and_its_objects_go(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "branch", "create", "--store", store, "pr-1")
    run(capsys, "branch", "end", "--store", store, "pr-1")
    said = run(capsys, "read", "--store", store, "--branch", "pr-1", "orders", code=1)
    assert f"`tussock branch create pr-1 --store {store}`" in said
    run(capsys, "vacuum", "--store", store)
    assert not list(open_object_store(store).list("branches/"))
    assert "no open branch" in run(capsys, "branch", "list", "--store", store)


def test_a_session_opens_its_branch_again(store: str) -> None:
    with Session(store, create=False, runner="local", workers=1) as session:
        with session.branch("b", follow=False) as branch:
            branch.insert("orders", pa.table({"id": pa.array([7], pa.int32())}))
            branch.flush()
        with session.branch("b") as branch:
            assert sorted(branch.read("orders")["id"].to_pylist()) == [1, 7]
        assert session.read("orders")["id"].to_pylist() == [1]


def test_a_branch_never_writes_to_the_places_of_its_parent(store: str) -> None:
    with Session(store, create=False) as session, session.branch("b") as branch:
        with pytest.raises(BranchWritesOutsideError, match="Run `tussock branch merge b`"):
            home_of(branch.meta.objects)
        session.meta.end_branch("b")
        with pytest.raises(BranchGoneError):
            branch_address(store, "b")


def test_a_branch_writes_no_table_of_its_parents_sink_and_is_gone_with_a_moved_parent(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline(store, tmp_path, monkeypatch)
    with (tmp_path / "pipelines" / "shop" / "pipeline.toml").open("a") as file:
        file.write(f'[publish]\nto = "{tmp_path}/tables"\n')
    run(capsys, "branch", "create", "shop", "pr-1")
    assert "the parent then publishes the rows" in run(capsys, "publish", "shop", "--branch", "pr-1", code=1)
    assert not (tmp_path / "tables").exists()
    moved = Path(store).rename(tmp_path / "moved")
    said = run(capsys, "read", "--pipeline", "shop", "--branch", "pr-1", "orders", code=1)
    assert "contains no store, so it has no branch 'pr-1'" in said
    assert "correct `store` in pipeline.toml" in said
    assert ids_in(capsys, "--store", str(moved), "--branch", "pr-1") == ["1"], "it has moved along"


def test_a_merge_shows_its_plan_and_gives_the_views_to_the_parent(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline(store, tmp_path, monkeypatch)
    run(capsys, "branch", "create", "shop", "pr-1")
    ids = Scan("orders", (0,), (Field("id", "int"),))
    append(open_meta(store).branch("pr-1"), CreateView("ids", "SELECT id FROM orders", ids))
    behind = run(capsys, "branch", "merge", "--store", store, "pr-1", "--plan", code=1)
    assert "Run `tussock epoch --branch pr-1" in behind
    run(capsys, "epoch", "--pipeline", "shop", "--branch", "pr-1")
    planned = run(capsys, "branch", "merge", "--store", store, "pr-1", "--plan")
    assert "+ view ids  new, adopted from the branch, 1 rows" in planned
    assert "only in pr-1: ids" in planned, "the rows that readers will see"
    digest = planned.split()[-1]
    add_rows(store, 2)  # the approval holds for the branch, which the merge brings to the parent's epoch
    assert "was approved" in run(capsys, "branch", "merge", "--store", store, "pr-1", "--approved", "x", code=1)
    run(capsys, "branch", "merge", "--store", store, "pr-1", "--approved", digest)
    assert sorted(run(capsys, "read", "--store", store, "ids", "--csv").split()) == ['"id"', "1", "2"]
    assert "no open branch" in run(capsys, "branch", "list", "--store", store)
    add_rows(store, 3)
    assert sorted(run(capsys, "read", "--store", store, "ids", "--csv").split()) == ['"id"', "1", "2", "3"]


def test_an_environment_may_be_a_branch_of_another(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline("elsewhere", tmp_path, monkeypatch)
    with (tmp_path / "pipelines" / "shop" / "pipeline.toml").open("a") as file:
        file.write(f'[env.prod]\nstore = "{store}"\n[env.dev]\nstore = "branch:prod"\n')
    assert ids_in(capsys, "--pipeline", "shop", "--env", "dev") == ["1"]
    add_rows(store, 2)
    assert ids_in(capsys, "--pipeline", "shop", "--env", "dev") == ["1"]
    said = run(capsys, "status", "--pipeline", "shop", "--env", "dev")
    assert "branch dev: 1 epoch behind its parent" in said
    run(capsys, "epoch", "--pipeline", "shop", "--env", "dev")
    assert ids_in(capsys, "--pipeline", "shop", "--env", "dev") == ["1", "2"]
    assert "open branches: dev" in run(capsys, "status", "--store", store)


def test_commands_on_branches_and_differences_lead_to_the_parent_of_an_environment_that_is_a_branch(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline(store, tmp_path, monkeypatch)
    with (tmp_path / "pipelines" / "shop" / "pipeline.toml").open("a") as file:
        file.write('[env.prod]\n[env.dev]\nstore = "branch:prod"\n')
    assert "(dev, branch dev)" in run(capsys, "status", "shop", "--env", "dev")
    assert run(capsys, "branch", "list", "shop", "--env", "dev").splitlines()[1].startswith("dev")
    refused = run(capsys, "branch", "create", "shop", "x", "--env", "dev", code=1)
    assert "name the environment of its parent with --env" in refused
    assert "a branch has no branches" in run(capsys, "status", "shop", "--env", "dev", "--branch", "x", code=1)
    add_rows(store, 2)
    for other in ([], ["dev"], ["orders"]):
        assert "branch dev" in run(capsys, "diff", "shop", *other, "--env", "dev", "--samples", "0")
    run(capsys, "epoch", "--pipeline", "shop", "--env", "dev")
    first, last = open_meta(branch_address(store, "dev")).read_latest().epochs[-2:]
    changes = run(capsys, "diff", "shop", "--env", "dev", "--from", str(first), "--to", str(last), code=1)
    assert "orders: 1 row added" in changes
    assert changes.count("branch dev") == 2
    assert "has ended" in run(capsys, "branch", "end", "shop", "dev", "--env", "dev")


def test_a_branch_is_compared_with_its_parent_and_at_its_own_epochs_by_the_option(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "branch", "create", "--store", store, "pr-1", "--own")
    before = open_meta(store).read_latest().epoch
    add_rows(branch_address(store, "pr-1"), 2, 3)
    assert "orders: 2 rows added" in run(capsys, "diff", store, "--branch", "pr-1", code=1)
    assert "orders: 2 rows added" in run(capsys, "diff", store, "--branch", "pr-1", "--from", str(before), code=1)
    assert "no differences" in run(capsys, "diff", store, "--from", str(before))


def test_the_status_of_a_branch_prints_commands_for_the_branch(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline(store, tmp_path, monkeypatch)
    run(capsys, "branch", "create", "shop", "pr-1", "--own")
    for number in range(2, 12):
        add_rows(branch_address(store, "pr-1"), number)
    status = run(capsys, "status", "shop", "--branch", "pr-1")
    assert status.startswith("pipeline shop (branch pr-1): ")
    assert "tussock compact" not in status, "it would copy the parent's rows"
    record_failure(open_meta(branch_address(store, "pr-1")), "epoch", {}, 1, "see `tussock inspect epochs`")
    status = " ".join(run(capsys, "status", "shop", "--branch", "pr-1", code=4).split())
    assert "`tussock inspect epochs --pipeline shop --branch pr-1`" in status


def test_the_merge_of_a_branch_with_its_own_input_drops_what_the_branch_dropped(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline(store, tmp_path, monkeypatch)
    (tmp_path / "pipelines/shop/views.sql").write_text("")
    ids, parent = Scan("orders", (0,), (Field("id", "int"),)), open_meta(store)
    append(parent, CreateView("ids", "SELECT id FROM orders", ids), CreateView("kept", "SELECT id FROM orders", ids))
    append(parent, CreateTable("odd Name", (Field("id", "int"),), (0,)))
    run(capsys, "epoch", "--pipeline", "shop")
    run(capsys, "branch", "create", "shop", "pr-1", "--own")
    append(parent.branch("pr-1"), Drop(RelationKind.VIEW, "ids"), Drop(RelationKind.TABLE, "odd Name"))
    run(capsys, "epoch", "--pipeline", "shop", "--branch", "pr-1")
    planned = run(capsys, "branch", "merge", "shop", "pr-1", "--plan")
    assert [line.split("  ")[0] for line in planned.splitlines() if line.startswith("-")] == [
        "- table odd name",
        "- view ids",
    ]
    digest = next(line.split()[-1] for line in planned.splitlines() if line.startswith("digest"))
    run(capsys, "branch", "merge", "shop", "pr-1", "--approved", digest)
    run(capsys, "epoch", "--pipeline", "shop")
    assert [r.name for r in open_meta(store).read_latest().catalog.live_relations()] == ["orders", "kept"]


def test_the_plan_of_a_merge_lists_suites_and_sinks_that_left_the_files_and_its_approval_covers_them(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline(store, tmp_path, monkeypatch)
    folder = tmp_path / "pipelines" / "shop"
    (folder / "views.sql").write_text("")
    toml = (folder / "pipeline.toml").read_text() + "[quality]\n"
    (folder / "pipeline.toml").write_text(f'{toml}[publish]\nkind = "parquet"\nto = "{tmp_path}/tables"\n')
    suite = folder / "quality" / "orders.json"
    suite.parent.mkdir()
    suite.write_text('{"expectations": [], "meta": {"maintain": false}}')
    run(capsys, "apply", "shop")
    run(capsys, "branch", "create", "shop", "pr-1")
    ids = Scan("orders", (0,), (Field("id", "int"),))
    append(open_meta(store).branch("pr-1"), CreateView("ids", "SELECT id FROM orders", ids))
    run(capsys, "epoch", "--pipeline", "shop", "--branch", "pr-1")
    planned = run(capsys, "branch", "merge", "shop", "pr-1", "--plan")
    assert "in the files" not in planned
    with_suite = planned.split()[-1]

    suite.unlink()
    (suite.parent / "ids.json").write_text('{"expectations": [], "meta": {"maintain": false}}')
    (folder / "pipeline.toml").write_text(toml)
    planned = run(capsys, "branch", "merge", "shop", "pr-1", "--plan")
    assert planned.splitlines()[-5:-1] == [
        "+ view ids  new, adopted from the branch, 1 rows",
        "+ suite ids.json  new in the files",
        "- suite orders.json  removed in the files",
        "- sink parquet  removed in the files; its tables stay as they are",
    ]
    assert "was approved" in run(capsys, "branch", "merge", "shop", "pr-1", "--approved", with_suite, code=1)
    add_rows(store, 2)  # the branch follows, and the approval stays
    run(capsys, "branch", "merge", "shop", "pr-1", "--approved", planned.split()[-1])
    run(capsys, "branch", "create", "shop", "pr-2")
    assert "branch pr-2 has no changes" in run(capsys, "branch", "merge", "shop", "pr-2", "--plan")


def test_a_branch_that_cannot_go_on_shows_the_epochs_that_it_has_taken(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline(store, tmp_path, monkeypatch)
    run(capsys, "branch", "create", "shop", "pr-1")
    before = open_meta(store).read_latest().epoch
    add_rows(store, 2)
    run(capsys, "undo", "shop", "--to", str(before))
    assert "went back to an earlier epoch" in run(capsys, "epoch", "--pipeline", "shop", "--branch", "pr-1", code=1)
    assert ids_in(capsys, "--pipeline", "shop", "--branch", "pr-1") == ["1", "2"], "no later run can publish them"
