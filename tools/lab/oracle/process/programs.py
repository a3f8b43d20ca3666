"""Real programs: python3, redis-server, postgres."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

from . import support
from .support import children_of, gone, passed, run, segments, skipped, until


def python(v):
    code = "import threading,time\nthings = {n: 'value %d' % n for n in range(200000)}\n" \
           "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nprint('ready', flush=True)\ninput()"
    child = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    core = v.equal_memory(child.pid, "python3 with 200,000 objects")
    text = v.gdb(os.path.realpath(shutil.which("python3")), core, "thread apply all backtrace 3")
    assert len(re.findall(r"^Thread \d+ ", text, re.M)) == 2 and "#1" in text, text
    child.communicate("\n", timeout=support.DEADLINE)
    assert child.returncode == 0
    passed("python3: both threads have backtraces, and it exits normally afterwards")


def redis(v):
    path = v.directory / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--enable-debug-command", "yes",
               "--dir", str(v.directory), "--logfile", str(v.directory / "redis.log")]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             start_new_session=True)

    def ask(*words):
        text = "".join([f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words])
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(support.DEADLINE)
            link.connect(str(path))
            link.sendall(text.encode())
            answer = link.makefile("rb")
            line = answer.readline().decode().strip()
            if line.startswith("$"):
                return answer.read(int(line[1:])).decode()
            return line

    def ask_safely(*words):
        try:
            return ask(*words)
        except OSError:
            return ""

    until(lambda: path.exists() and ask_safely("PING") == "+PONG", "redis-server starts")
    ask("DEBUG", "POPULATE", "200000", "key", "100")
    ask("SET", "last", "word")
    pid = child.pid
    digest = ask("DEBUG", "DIGEST")
    core = v.equal_memory(pid, "redis-server with 200,000 keys")
    text = v.gdb(shutil.which("redis-server"), core, "thread apply all backtrace 3")
    assert len(re.findall(r"^Thread \d+ ", text, re.M)) == len(os.listdir(f"/proc/{pid}/task")), text
    assert (ask("DBSIZE"), ask("DEBUG", "DIGEST")) == (":200001", digest), "keys were lost"
    passed("redis-server: all threads have backtraces, all keys are present afterwards")
    if v.args.criu:
        for number in v.restarts(child):
            assert (ask("DBSIZE"), ask("GET", "last"), ask("DEBUG", "DIGEST")) == (":200001", "word", digest), \
                f"keys were lost in restart {number}"
            assert ask("SET", "restart", str(number)) == "+OK" and ask("DEL", "restart") == ":1", "it takes no more keys"
        passed(f"redis-server: serves all its keys after {v.args.rounds} checkpoints and restarts")
    os.kill(pid, signal.SIGKILL)
    child.wait()


def postgres(v):
    programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        sys.exit("postgresql is not installed: run scripts/setup.sh test")
    data = v.directory / "postgres"
    data.mkdir()
    shutil.chown(data, "postgres")

    def as_postgres(program, *arguments, **options):
        return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups",
                str(programs[-1] / program), *map(str, arguments)]

    run(*as_postgres("initdb", "-D", data, "-A", "trust", "-N"), cwd="/")
    log = open(v.directory / "postgres.log", "w")
    # CRIU saves System V shared memory only with the IPC namespace that has it.
    server = as_postgres("postgres", "-D", data, "-c", "listen_addresses=", "-k", data, "-F")
    child = subprocess.Popen(["unshare", "--ipc", *server], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                             start_new_session=True)

    def sql(text, ok=0):
        return run(*as_postgres("psql", "-h", data, "-d", "postgres", "-Atc", text), ok=ok, cwd="/").stdout.strip()

    until(lambda: (data / ".s.PGSQL.5432").exists() and sql("select 1", ok=None) == "1", "postgres starts")
    sql("create table t as select n, md5(n::text) as text from generate_series(1, 100000) n")
    sql("create table restarts (n int)")
    sums = sql("select count(*), md5(string_agg(text, '' order by n)) from t")
    core = v.equal_memory(child.pid, "postgres with a table of 100,000 rows")
    held = sum(stored for _, _, stored in segments(core))
    assert held > 100 << 20, "shared buffers are not in the core"
    assert sql("select count(*), md5(string_agg(text, '' order by n)) from t") == sums
    text = v.gdb(programs[-1] / "postgres", core, "backtrace 3")
    assert "#1" in text, text
    passed("postgres: its shared buffers are in the core, its table is intact afterwards")
    if not may_exceed_limits():
        skipped("postgres: restarts: without CAP_SYS_RESOURCE CRIU cannot read the limits of another user's processes")
    elif v.args.criu:
        before = workers(child.pid)
        assert "checkpointer" in " ".join(before), before
        for number in v.restarts(child):
            assert sql("select count(*), md5(string_agg(text, '' order by n)) from t") == sums, f"rows were lost in restart {number}"
            sql(f"insert into restarts values ({number})")
            assert sql("select count(*) from restarts") == str(number), f"rows of earlier restarts were lost in restart {number}"
            assert workers(child.pid) == before, f"the process tree differs: {before}, {workers(child.pid)}"
        passed(f"postgres: reads its table and writes after {v.args.rounds} checkpoints and restarts, all its processes are there")
    os.kill(child.pid, signal.SIGINT)
    child.wait()
    gone(child.pid)
    assert "database system is shut down" in (v.directory / "postgres.log").read_text().splitlines()[-1]
    passed("postgres: shuts down normally")


def workers(server):
    """Returns the numbers and titles of a server's processes but those that serve one connection or table, which come and go."""
    found = []
    for pid in children_of(server):
        try:
            title = pathlib.Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0 ")
        except OSError:
            continue
        if title and "[local]" not in title and "autovacuum worker" not in title:
            found.append(f"{pid} {title}")
    return found


def may_exceed_limits():
    """Returns whether root has CAP_SYS_RESOURCE, which containers may lack."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"^CapEff:\s+(\w+)", status, re.M).group(1), 16) >> 24 & 1
