"""Problems of the server (gone, hanging, crashed, locks, rights): typed errors, nothing lost, and it works again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dragoman.stores
from dragoman.conversation import Message
from dragoman.errors import (
    ConfigurationError,
    DragomanError,
    SnapshotCorruptError,
    StoreError,
    StoreUnavailableError,
)
from dragoman.stores import (
    ConversationStore,
    MessageAdded,
    PostgresStore,
    Snapshot,
)
from tests.stores.cases import after, chain, first, goes_on
from tests.stores.postgres_server import Server, fresh_server


@pytest.fixture(scope="module")
def own(server: Server) -> Iterator[Server]:
    """A server that these tests may stop."""
    with fresh_server() as own:
        yield own


def admin_of(server: Server) -> psycopg.Connection:
    return psycopg.connect(server.conninfo, autocommit=True)


def asked(store: ConversationStore, points: list[Snapshot]) -> list[Callable[[], object]]:
    return [
        lambda: store.load(points[0].id),
        store.list,
        lambda: store.journal(points[0].id),
        lambda: store.record(points[-1].id, [MessageAdded(Message.user("x"))], after=0),
        lambda: store.save(after(points[-1], "x"), after=1),
        lambda: store.delete(points[0].id),
    ]


def test_the_store_works_again_when_the_server_is_back(own: Server, schema: str) -> None:
    with PostgresStore(own.conninfo, schema=schema) as store:
        points = chain(store, 3)
        own.stop("fast")
        try:
            for _ in range(2):
                for ask in asked(store, points):
                    with pytest.raises(StoreUnavailableError, match="works again once the server is back"):
                        ask()
        finally:
            own.start()
        goes_on(store, points)


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_restart_of_the_server_is_not_noticed(own: Server, schema: str, how: str) -> None:
    with PostgresStore(own.conninfo, schema=schema) as store:
        points = chain(store, 2)
        for ask in (lambda: goes_on(store, points), store.list, lambda: store.journal(points[0].id)):
            own.stop(how)
            own.start()
            ask()
        own.stop(how)
        own.start()
        newest = store.latest(points[0].id)
        assert store.record(newest.id, [MessageAdded(Message.user("x"))], after=0) == 1


def backends(server: Server) -> list[int]:
    """The server processes of stores; waits for a recovering server, which refuses and cuts connections."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(server.conninfo) as connection:
                query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'dragoman'"
                return [process for (process,) in connection.execute(query)]
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_server_crashes(own: Server, schema: str) -> None:
    """Threads save as fast as they can, while the server crashes again and again."""
    acknowledged: list[Snapshot] = []
    unexpected: list[BaseException] = []
    stop = threading.Event()

    def talk(number: int) -> None:
        with PostgresStore(own.conninfo, schema=schema) as store:
            point = first(f"thread {number}")
            while not stop.is_set():
                try:
                    store.save(point)
                except StoreUnavailableError:
                    time.sleep(0.01)
                    continue  # repeat it, whether it was saved or not
                except BaseException as error:  # noqa: BLE001 - shown by the test
                    unexpected.append(error)
                    return
                acknowledged.append(point)
                point = after(point, f"turn {len(point.messages)} " + "x" * 2000)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for round_ in range(12):
            before = len(acknowledged)
            deadline = time.monotonic() + 60
            while len(acknowledged) < before + 5 and not unexpected and time.monotonic() < deadline:
                time.sleep(0.01)
            if round_ % 3 == 1:  # not in the last round, after which the server must be there
                for process in backends(own)[:1]:
                    os.kill(process, signal.SIGKILL)
            else:
                own.stop("immediate")
                own.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not unexpected
    assert len(acknowledged) >= 60
    with PostgresStore(own.conninfo, schema=schema) as store:
        for point in acknowledged:
            assert store.load(point.id) == point
        assert not store.list().unreadable


def test_waiting_for_a_hanging_server_ends_at_the_timeout(own: Server, schema: str) -> None:
    with PostgresStore(own.conninfo, schema=schema, timeout=1) as store:
        points = chain(store, 2)
        processes = backends(own)
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailableError, match="not answered"):
                store.save(after(points[-1], "x"))
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)
    with PostgresStore(own.conninfo, schema=schema) as store:
        goes_on(store, points)


def test_waiting_for_a_lock_ends_at_the_timeout(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema, timeout=1.5) as store:
        points = chain(store, 2)
        with psycopg.connect(server.conninfo) as other:
            other.execute(f"SELECT * FROM {schema}.chain FOR UPDATE")
            with pytest.raises(StoreUnavailableError, match="busy for too long"):
                store.save(after(points[-1], "x"))
            assert store.load(points[-1].id) == points[-1]  # readers do not wait for writers
            other.rollback()
        goes_on(store, points)


def test_waiting_for_a_connection_ends_at_the_timeout(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema, timeout=0.7, connections=1) as store:
        points = chain(store, 2)
        inside, release = threading.Event(), threading.Event()

        def hold(_session: object) -> None:
            inside.set()
            release.wait(30)

        thread = threading.Thread(target=lambda: store._read(hold))
        thread.start()
        try:
            assert inside.wait(30)
            with pytest.raises(StoreUnavailableError, match="All 1 connections"):
                store.save(after(points[-1], "x"))
        finally:
            release.set()
            thread.join()
        goes_on(store, points)


def test_deadlocks_are_retried(server: Server, schema: str) -> None:
    """Another client takes two locks in the other order; the server ends one of the two transactions."""
    # The server checks for a deadlock once, this long after our wait began: the other must wait by then.
    settings = f"{server.conninfo} options='-c deadlock_timeout=1500ms'"
    with PostgresStore(settings, schema=schema) as store:
        points = chain(store, 2)
        saved = threading.Event()
        longer = after(points[-1], "x")

        def save() -> None:
            store.save(longer)
            saved.set()

        with psycopg.connect(server.conninfo) as other:
            other.execute("SET deadlock_timeout = '60s'")  # so that ours is ended
            other.execute(f"LOCK TABLE {schema}.message IN ACCESS EXCLUSIVE MODE")
            thread = threading.Thread(target=save)
            thread.start()
            deadline = time.monotonic() + 30
            with admin_of(server) as admin:
                while (
                    time.monotonic() < deadline
                    and not admin.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone()
                ):
                    time.sleep(0.01)
            other.execute(f"SELECT * FROM {schema}.chain FOR UPDATE")
            other.rollback()
        thread.join(30)
        assert saved.is_set()
        goes_on(store, [*points, longer])


# --- rights and settings ---------------------------------------------------------------------------------------------


@pytest.fixture
def locked_user(server: Server) -> Iterator[str]:
    """A user with a password."""
    with admin_of(server) as connection:
        connection.execute("CREATE ROLE locked LOGIN PASSWORD 'open-sesame-9'")
        yield "open-sesame-9"
        connection.execute("DROP OWNED BY locked")
        connection.execute("DROP ROLE locked")


def test_errors_do_not_repeat_the_password(server: Server, schema: str, locked_user: str) -> None:
    wrong = "wrong-horse-battery"
    for conninfo, says in (
        (server.conninfo_for(user="locked", password=wrong), "password authentication failed"),
        (f"host=/no/{wrong} password={wrong}", "/no/…/"),  # in the server's message
        (server.conninfo_for(user="postgres", password=wrong, database="nowhere"), "nowhere"),
    ):
        with PostgresStore(conninfo, schema=schema) as store:
            with pytest.raises(StoreUnavailableError, match=says) as caught:
                store.list()
            assert wrong not in f"{caught.value!r} {caught.value}"
            assert says == "/no/…/" or wrong not in f"{store!r} {caught.value.__cause__!r}"


def test_missing_rights_are_an_error(server: Server, schema: str, locked_user: str) -> None:
    conninfo = server.conninfo_for(user="locked", password=locked_user)
    with PostgresStore(conninfo, schema=schema) as store, admin_of(server) as admin:
        with pytest.raises(StoreError, match="does not allow it.*Grant"):
            store.save(first("x"))
        # The right to create schemas is not needed if the schema exists.
        admin.execute(f"CREATE SCHEMA {schema} AUTHORIZATION locked".encode())
        goes_on(store, chain(store, 2))


def test_a_read_only_default_is_overridden(server: Server, schema: str) -> None:
    with PostgresStore(f"{server.conninfo} options='-c default_transaction_read_only=on'", schema=schema) as store:
        goes_on(store, chain(store, 2))


def test_the_next_host_is_tried_if_one_does_not_answer(server: Server, schema: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"host=127.0.0.1,{server.directory} port={silent.getsockname()[1]},5432 user=postgres dbname=postgres"
        with PostgresStore(hosts, schema=schema, timeout=6) as store:
            points = chain(store, 2)
    with PostgresStore(server.conninfo, schema=schema) as store:
        goes_on(store, points)


def test_the_host_of_a_service_wins_over_the_environment(
    server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = tmp_path / "services.conf"
    services.write_text(f"[main]\nhost={server.directory}\nuser=postgres\ndbname=postgres\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    with PostgresStore("service=main", schema=schema) as store:
        goes_on(store, chain(store, 2))


def test_a_host_name_that_cannot_exist_is_a_typed_error() -> None:
    with PostgresStore("host=a..b") as store, pytest.raises(StoreUnavailableError, match="cannot be reached"):
        store.list()


@pytest.mark.parametrize(
    "conninfo",
    [
        "host=x password=my secret-part",
        "postgresql://user:secret-part@x:y/z",
        "postgresql://user:p%zzsecret-part@host/db",
        "postgresql://user:pass@secret-part@host/db",
        "postgresql://user:pa/secret-part@host/db",
        "postgresql://user:pa:ss/secret-part@host/db",
        "nonsense=secret-part",
        "host=x password='secret-part",
        "host=x\0password=secret-part",
        7,
        None,
    ],
)
def test_errors_do_not_repeat_an_invalid_connection_string(conninfo: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        PostgresStore(conninfo)
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret-part" not in f"{error!r} {error}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


NAMES = ["", "Dragoman", "a b", "a;b", 'a"b', "a.b", "1a", "é", "a" * 64, "a\n", "a\0", "{s}", "%s", None, 7]
WRONG = [{"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"connections": 0}]


@pytest.mark.parametrize("options", [*WRONG, *[{"schema": name} for name in NAMES]])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="name of a schema" if "schema" in options else "needs a timeout"):
        PostgresStore("host=x", **options)


def test_an_interrupted_save_changes_nothing(server: Server, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = chain(store, 2)

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("dragoman.stores.listing.searchable_text", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.save(after(points[-1], "x"))
        monkeypatch.undo()
        goes_on(store, points)


def test_without_psycopg_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "psycopg" or "stores.postgres_driver" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(dragoman.stores, "postgres_driver", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'dragoman\[postgres\]'"):
        PostgresStore("host=x")


# --- connections that break while a transaction is being committed ---------------------------------------------------

STEPS = [MessageAdded(Message.user("a step"))]
BOTH = pytest.mark.parametrize("arrives", [True, False])


class Proxy:
    """Forwards bytes, and can cut the connection at a COMMIT."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._cut: str | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def conninfo(self) -> str:
        port = self._listener.getsockname()[1]
        return f"host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable gssencmode=disable"

    def cut_next_commit(self, *, arrives: bool) -> None:
        """Cut the connection at the next COMMIT, which arrives at the server or does not."""
        self._cut = "after" if arrives else "before"

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(f"{self._server.directory}/.s.PGSQL.5432")
                self._sockets |= {client, upstream}
                for source, target, watched in ((client, upstream, True), (upstream, client, False)):
                    threading.Thread(target=self._pass_on, args=(source, target, watched), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, watched: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if watched and self._cut and b"COMMIT\0" in data:
                    self._cut_off(source, target, data)
                    return
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _cut_off(self, client: socket.socket, upstream: socket.socket, data: bytes) -> None:
        how, self._cut = self._cut, None
        self.cuts += 1
        client.shutdown(socket.SHUT_RDWR)
        if how == "after":
            upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)  # the server reads all that was sent
        else:
            upstream.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    with contextlib.closing(Proxy(server)) as proxy:
        yield proxy


def eventually(look: Callable[[], bool]) -> bool:
    """Wait for the server to process what had arrived."""
    for _ in range(200):
        if look():
            return True
        time.sleep(0.01)
    return False


@BOTH
def test_a_save_is_retried_if_the_commit_is_cut(proxy: Proxy, schema: str, arrives: bool) -> None:
    with PostgresStore(proxy.conninfo, schema=schema) as store:
        points = chain(store, 2)
        for snapshot in (after(points[-1], "x"), first("another")):
            proxy.cut_next_commit(arrives=arrives)
            store.save(snapshot)
            assert store.load(snapshot.id) == snapshot
        assert proxy.cuts == 2
        assert len(store.history(points[0].id).items) == 3


@BOTH
def test_record_and_delete_report_an_unknown_outcome(proxy: Proxy, schema: str, arrives: bool) -> None:
    with PostgresStore(proxy.conninfo, schema=schema) as store:
        [one] = chain(store, 1)
        proxy.cut_next_commit(arrives=arrives)
        with pytest.raises(StoreUnavailableError, match=r"is unknown whether.*Check before.*journal"):
            store.record(one.id, STEPS, after=0)
        assert eventually(lambda: store.journal(one.id).position == (1 if arrives else 0))
        at = store.journal(one.id).position
        assert store.record(one.id, STEPS, after=at) == at + 1
        proxy.cut_next_commit(arrives=arrives)
        with pytest.raises(StoreUnavailableError, match="is unknown whether"):
            store.delete(one.id)
        assert proxy.cuts == 2
        assert eventually(lambda: bool(store.list().items) != arrives)


# --- what the server says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("53100", StoreUnavailableError, "short of space"),  # the disk is full
        ("53300", StoreUnavailableError, "connections"),
        ("25006", StoreUnavailableError, "read-only"),
        ("55P03", StoreUnavailableError, "busy"),
        ("57014", StoreUnavailableError, "busy"),
        ("58030", StoreUnavailableError, "its disk failed"),
        ("42501", StoreError, "does not allow"),
        ("42P01", StoreError, "gone"),
        ("54000", StoreError, "more than the database can hold"),
        ("XX001", SnapshotCorruptError, "damaged"),
        ("P0001", StoreError, "refused"),
    ],
)
def test_errors_of_the_server_are_typed_and_change_nothing(
    server: Server, schema: str, code: str, kind: type[DragomanError], says: str
) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store, admin_of(server) as admin:
        points = chain(store, 2)
        admin.execute(
            f"CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$BEGIN RAISE 'its own words' USING ERRCODE = '{code}'; END$$; "
            f"CREATE TRIGGER fail BEFORE INSERT ON {schema}.message EXECUTE FUNCTION {schema}.fail()"
        )
        with pytest.raises(DragomanError, match=rf"{says}.*\(its own words\)") as caught:
            store.save(after(points[-1], "x"))
        assert type(caught.value) is kind
        assert caught.value.hint
        admin.execute(f"DROP TRIGGER fail ON {schema}.message")
        goes_on(store, points)


def test_the_store_works_again_when_its_tables_are_back(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store, admin_of(server) as admin:
        points = chain(store, 2)
        for gone, back in (
            (f"ALTER TABLE {schema}.message RENAME TO away", f"ALTER TABLE {schema}.away RENAME TO message"),
            (f"ALTER SCHEMA {schema} RENAME TO {schema}_away", f"ALTER SCHEMA {schema}_away RENAME TO {schema}"),
        ):
            admin.execute(gone)
            for ask in (lambda: store.load(points[0].id), lambda: store.save(after(points[-1], "x"))):
                with pytest.raises(StoreError, match="gone.*Restore the schema"):
                    ask()
            admin.execute(back)
        goes_on(store, points)
