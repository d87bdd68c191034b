"""The life of one pod on this machine: its containers in their order, until they are over or told to end.

What becomes of a container is in the pod's status before anything follows from it. In particular a pod says that it has
begun before its first process does: one that an earlier node's process began is never begun a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from clockhand import errors
from clockhand.domain import instants, texts
from clockhand.standalone.kube import store as stores
from clockhand.standalone.nodes import (
    containers,
    files,
    ground,
    leftovers,
    logs,
    manifest,
    probes,
    rendering,
    statuses,
    workers,
)

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 1.0
_LAST_LINES, _LAST_BYTES = 80, 2048
_TOO_LONG = "Pod was active on the node longer than the specified deadline"


class LocalPod:
    """One pod. `run` does it all; `stop` may be called at any time, and again with less time."""

    def __init__(self, pod: manifest.Pod, its: ground.Ground) -> None:
        self.pod = pod
        self._ground = its
        self._files = files.Files(pod, its)
        self._key = stores.Key("pods", pod.metadata.namespace, pod.metadata.name)
        began = pod.status.start_time
        self._started_at = instants.read(began, "status.startTime") if began else its.clock()
        self._records = {one.name: one for one in statuses.at_first(pod, now=its.clock())}
        self._processes: dict[str, containers.Process] = {}
        self._why = ("", "")
        self._is_over = False
        self._stopping, self._killing, self._done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._kill_at: asyncio.TimerHandle | None = None

    def stop(self, grace_seconds: float, *, reason: str = "", message: str = "") -> None:
        """Asks the processes to end, and kills them after the time of grace; a `reason` makes the pod a failed one."""
        self._why = self._why if self._why[0] else (reason, message)
        self._stopping.set()
        if self._kill_at is not None:
            self._kill_at.cancel()
        self._kill_at = asyncio.get_running_loop().call_later(max(grace_seconds, 0), self._killing.set)

    def log_of(self, container: str) -> logs.Log | None:
        """The log that is being written."""
        process = self._processes.get(container)
        return process.log if process else None

    async def run(self) -> None:
        """Until all containers are over, and the status says so."""
        await self._store()
        tokens = asyncio.create_task(self._files.keep_tokens())
        deadline = self._watch_deadline()
        try:
            sidecars = await self._run_all()
            self._done.set()
            await asyncio.gather(*sidecars)
        finally:
            for handle in (deadline, self._kill_at, tokens):
                if handle is not None:
                    handle.cancel()
            self._files.clear()
        self._is_over = True
        await self._store()

    async def _run_all(self) -> list[asyncio.Task[bool]]:
        """The containers in their order; returns the sidecars, which are still to end."""
        sidecars: list[asyncio.Task[bool]] = []
        for container in self.pod.spec.init_containers:
            if container.is_sidecar:
                began = asyncio.Event()
                sidecars.append(asyncio.create_task(self._keep(container, until=self._done, began=began)))
                await self._either(began, self._stopping)
            elif not await self._keep(container, until=self._stopping):
                return sidecars
        await asyncio.gather(*(self._keep(one, until=self._stopping) for one in self.pod.spec.containers))
        return sidecars

    async def _keep(
        self, container: manifest.Container, *, until: asyncio.Event, began: asyncio.Event | None = None
    ) -> bool:
        """Runs a container until it is to be started no more; whether it ended well."""
        while not until.is_set():
            end = await self._run_once(container, until, began)
            if end is None or not self._restarts(container, end):
                return end is not None and end.code == 0
            await self._back_off(container, end, until)
        return False

    def _restarts(self, container: manifest.Container, end: statuses.Ended) -> bool:
        policy = self.pod.spec.restart_policy
        if container.is_sidecar:
            return True
        if container in self.pod.spec.init_containers:
            return policy != "Never" and end.code != 0
        return policy == "Always" or (policy == "OnFailure" and end.code != 0)

    async def _back_off(self, container: manifest.Container, end: statuses.Ended, until: asyncio.Event) -> None:
        record = self._records[container.name]
        seconds = statuses.backoff(record)
        if seconds and not until.is_set():
            said = f"back-off {seconds:.0f}s restarting failed container={container.name}"
            await self._note(replace(record, state=statuses.Waiting(statuses.CRASH_LOOP, said), last=end))
            await self._pause(seconds, until)
        if not until.is_set():
            record = self._records[container.name]
            self._records[container.name] = replace(record, last=end, restarts=record.restarts + 1)

    async def _run_once(
        self, container: manifest.Container, until: asyncio.Event, began: asyncio.Event | None
    ) -> statuses.Ended | None:
        """One start and its end; None where the pod was told to end before there was anything to start."""
        try:
            rendered = await self._command(container, until)
            if rendered is None:
                return None
            command, ports = workers.of_this_machine(self.pod, container, rendered)
            process = await self._start(container, command)
        except errors.InvalidInput as error:
            reason = "NoCommand" if isinstance(error, rendering.NoCommand) else "StartError"
            end = statuses.not_started(error.sentence, reason=reason, now=self._ground.clock())
            await self._note(replace(self._records[container.name], state=end, ready=False))
            return end
        finally:
            if began is not None:
                began.set()
        return await self._attend(container, process, command, ports, until)

    async def _command(self, container: manifest.Container, until: asyncio.Event) -> rendering.Command | None:
        """What is to be started, once all is there that it is made of."""
        while not until.is_set():
            try:
                return self._rendered(container)
            except errors.NotFound as error:
                waiting = statuses.Waiting("CreateContainerConfigError", str(error))
                await self._note(replace(self._records[container.name], state=waiting))
                await self._pause(_AGAIN_SECONDS, until)
            except OSError as error:
                raise errors.InvalidInput("", f"its files cannot be written: {error}") from error
        return None

    def _rendered(self, container: manifest.Container) -> rendering.Command:
        found = self._files.objects()
        self._files.prepare(container, found)
        self._files.write_tokens()
        mark = leftovers.mark(self._ground.home, self.pod.metadata.uid, container.name)
        return rendering.command(
            self.pod,
            container,
            found=found,
            paths=self._files.paths(container),
            base={**self._ground.environment, leftovers.MARK: mark},
            directory=str(self._files.work(container)),
            entrypoint=("clockhand",) if container.name == self.pod.worker else (),
        )

    async def _start(self, container: manifest.Container, command: rendering.Command) -> containers.Process:
        record = self._records[container.name]
        folder = self._ground.logs(self.pod.metadata.uid, container.name)
        logs.forget(folder, before=record.restarts - 1)
        written = logs.Log(folder, record.restarts)
        try:
            process = await containers.Process.start(command, written, clock=self._ground.clock)
        except errors.InvalidInput:
            written.close()
            raise
        self._processes[container.name] = process
        return process

    async def _attend(
        self,
        container: manifest.Container,
        process: containers.Process,
        command: rendering.Command,
        ports: Mapping[int, int],
        until: asyncio.Event,
    ) -> statuses.Ended:
        state = statuses.Running(process.started_at, process.pid)
        ready = container.readiness_probe is None
        ending = asyncio.create_task(self._ended(process, until))
        asking = asyncio.create_task(self._ask(container, command, ports))
        try:
            await self._note(replace(self._records[container.name], state=state, ready=ready))
            end = await ending
        finally:
            asking.cancel()
        # before anybody hears that it is over, and another one may begin
        await asyncio.to_thread(leftovers.kill_of, self._ground.home, self.pod.metadata.uid, container.name)
        end = replace(end, message=end.message or self._last_words(container, end))
        await self._note(replace(self._records[container.name], state=end, ready=False))
        return end

    async def _ended(self, process: containers.Process, until: asyncio.Event) -> statuses.Ended:
        """Waits for the end of a process, and makes sure of it once the pod is told to end."""
        end = asyncio.create_task(process.wait())
        for told, number in ((until, signal.SIGTERM), (self._killing, signal.SIGKILL)):
            waiting = asyncio.create_task(told.wait())
            await asyncio.wait({end, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            process.signal(number)
        return await end

    async def _ask(self, container: manifest.Container, command: rendering.Command, ports: Mapping[int, int]) -> None:
        """Keeps what its probe says of a container that has one."""
        probe = container.readiness_probe
        if probe is None:
            return

        async def run(arguments: tuple[str, ...]) -> bool:
            return await containers.succeeds(command, arguments, probe.timeout_seconds)

        async def told(ready: bool) -> None:
            await self._note(replace(self._records[container.name], ready=ready))

        await probes.follow(probe, container, ports=ports, run=run, told=told)

    def _last_words(self, container: manifest.Container, end: statuses.Ended) -> str:
        said = self._files.message(container)
        if said or end.code == 0 or container.termination_message_policy != "FallbackToLogsOnError":
            return said
        folder = self._ground.logs(self.pod.metadata.uid, container.name)
        start = self._records[container.name].restarts
        return texts.tail(logs.tail(folder, start, lines=_LAST_LINES, limit=_LAST_BYTES), _LAST_BYTES)

    def _watch_deadline(self) -> asyncio.TimerHandle | None:
        seconds = self.pod.spec.active_deadline_seconds
        if seconds is None:
            return None
        grace = self.pod.spec.termination_grace_period_seconds
        stop = functools.partial(self.stop, grace, reason=statuses.DEADLINE_EXCEEDED, message=_TOO_LONG)
        left = seconds - (self._ground.clock() - self._started_at).total_seconds()
        return asyncio.get_running_loop().call_later(left, stop)

    async def _note(self, record: statuses.Record) -> None:
        """Where the pod is ended for a reason, its containers are told of with the reason, once all are over."""
        self._records[record.name] = record
        if not self._why[0]:
            await self._store()

    async def _store(self) -> None:
        """Writes the status. A pod that is not there any more has nobody to read it: its processes are ended."""
        try:
            await self._written()
        except (errors.NotFound, errors.Conflict):
            self.stop(0)

    async def _written(self) -> None:
        while True:
            try:
                await self._ground.store.change(self._key, self._with_status)
                return
            except errors.Unavailable as error:
                log.error("pod_status_not_written", pod=self._key.name, error=str(error))
                await asyncio.sleep(_AGAIN_SECONDS)

    def _with_status(self, body: stores.Json) -> stores.Json:
        if body["metadata"]["uid"] != self.pod.metadata.uid:
            raise errors.Conflict("another pod has the name")
        spec = {**body["spec"], "nodeName": rendering.NODE}
        before = body.get("status") or {}
        status = statuses.status(self.pod, self._life(), before=before, now=self._ground.clock())
        return {**body, "spec": spec, "status": status}

    def _life(self) -> statuses.Life:
        spec = self.pod.spec
        mains = [self._records[one.name] for one in spec.containers]
        reason, message = self._why if self._is_over and not self._is_spared(mains) else ("", "")
        init = [self._records[one.name] for one in spec.init_containers]
        return statuses.Life(self._started_at, mains, init, reason, message)

    def _is_spared(self, mains: Sequence[statuses.Record]) -> bool:
        """All that was to be done is done: the node's own end is none of it."""
        return self._why[0] == statuses.NODE_SHUTDOWN and all(one.has_succeeded for one in mains)

    async def _pause(self, seconds: float, until: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(until.wait(), seconds)

    @staticmethod
    async def _either(*events: asyncio.Event) -> None:
        waiting = {asyncio.create_task(one.wait()) for one in events}
        _, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
