"""A real Apache Kafka for the tests: one process that is broker and controller, which a test may kill, stop and start again.

Its programs come as Maven artifacts, by Maven's own settings, and are kept outside the tree beside those of the clusters.
It listens twice on loopback: in plain text, and over TLS with a password, as an installation would have it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster import binaries, engine, steps
from tests.support import guard, pki, ports

USER, PASSWORD = "clockhand", "opens sesame"
START_SECONDS = 120.0
_POM = Path(__file__).with_name("kafka-pom.xml")
_PACKAGES = {"java": "default-jre-headless", "mvn": "maven"}
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_CLUSTER_ID = "Y2xvY2toYW5kLXRlc3RzMQ"
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={root}/pki/keystore.pem
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs={root}/data
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
"""


def programs() -> Path:
    """The folder of the broker's jars; fetched by the first caller of all."""
    text = _POM.read_bytes()
    [version] = re.findall(rb"kafka_2\.13</artifactId>\s*<version>([0-9.]+)<", text)
    home = binaries.cache_root() / "tools" / f"kafka-{version.decode()}-{hashlib.sha256(text).hexdigest()[:10]}"
    if shutil.which("java") is None or not home.exists():
        with binaries.locked("kafka"):
            engine.ensure_programs(_PACKAGES)
            if not home.exists():
                _fetch(home)
    return home


def _fetch(home: Path) -> None:
    with steps.step(f"fetch {home.name}"), tempfile.TemporaryDirectory(prefix="clockhand-kafka-") as folder:
        shutil.copy(_POM, f"{folder}/pom.xml")
        unfinished = home.with_name(f".{home.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        into = f"-DoutputDirectory={unfinished}"
        steps.run(["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", into], cwd=Path(folder))
        unfinished.rename(home)


class Broker:
    """One Kafka with a folder of its own under /tmp; `stop()` removes it, and so does the end of this process."""

    def __init__(self) -> None:
        self._jars = programs()
        self._root = Path(tempfile.mkdtemp(prefix="clockhand-kafka-"))
        self._guard = guard.Guard(self._root)
        self._plain, self._secure, controller = ports.free(3)
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = self._root / "server.properties"
        listeners = {"plain": self._plain, "secure": self._secure, "controller": controller}
        self._settings.write_text(_PROPERTIES.format(root=self._root, user=USER, password=PASSWORD, **listeners))
        self._make_certificate()
        # the password that the broker keeps as a salted hash, for SCRAM
        scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        format_it = ["format", "--standalone", "-t", _CLUSTER_ID, "-c", str(self._settings), "--add-scram", scram]
        steps.run([*self._java(), "kafka.tools.StorageTool", *format_it])
        self.start()

    @property
    def servers(self) -> str:
        """Where anybody may connect."""
        return f"127.0.0.1:{self._plain}"

    @property
    def secure_servers(self) -> str:
        """Where one needs TLS, `USER` and `PASSWORD`."""
        return f"127.0.0.1:{self._secure}"

    @property
    def ca(self) -> Path:
        """The authority that signed the broker's certificate."""
        return self._root / "pki" / "ca.crt"

    def start(self) -> None:
        """Starts the broker and waits until it takes connections."""
        with (self._root / "log").open("ab") as log:
            command = [*self._java(), "kafka.Kafka", str(self._settings)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._guard.started(self._process.pid)
        steps.wait_for("the broker", self._answers, seconds=START_SECONDS)

    def kill(self) -> None:
        """Ends the broker at once; what it has acknowledged it still has when it starts again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._guard.gone(self._process.pid)
            self._process = None

    def pause(self) -> None:
        """Lets connections hang, as a machine that is gone from the network does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends the broker and removes its data."""
        self.kill()
        self._guard.close()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(number)

    def _java(self) -> list[str]:
        return ["java", *_JVM, "-cp", f"{self._jars}/*"]

    def _answers(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            raise steps.StepError((self._root / "log").read_text()[-4000:])
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._plain), timeout=1):
            return True
        return False

    def _make_certificate(self) -> None:
        folder = self._root / "pki"
        folder.mkdir()
        pki.authority(folder, "ca").issue("server", common_name="kafka", hosts=("127.0.0.1",))
        pems = [(folder / f"server.{kind}").read_text() for kind in ("key", "crt")]
        keystore = folder / "keystore.pem"
        keystore.touch(mode=0o600)
        keystore.write_text("".join(pems))


@contextlib.contextmanager
def broker() -> Iterator[Broker]:
    """A broker for the length of the block."""
    running = Broker()
    try:
        yield running
    finally:
        running.stop()
