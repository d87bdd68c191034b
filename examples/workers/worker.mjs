// A worker in JavaScript (node 18 or later), with nothing but the protocol of docs/protocol.md. Started as
//   CLOCKHAND_API_URL=http://localhost:8080 CLOCKHAND_POOL=team-a/mailers CLOCKHAND_TOKEN_FILE=token node worker.mjs
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

const handlers = {
  "email.send": async (run) => ({ to: run.payload.to, by: "node" }),
  "email.refuse": async () => { throw Object.assign(new Error("no such user"), { fatal: true }); },
};
const { CLOCKHAND_API_URL: api, CLOCKHAND_POOL: pool, CLOCKHAND_TOKEN_FILE: file } = process.env;
const worker = `node-${randomUUID()}`, places = 10, held = new Map(); // what it has until that is reported, by run id
let lease = 90, heartbeat = 30, renewed = 0, stopping = false;

async function call(verb, body) { // each call may be repeated, and is until it is answered; a claim says so
  for (let pause = 100; ; pause = Math.min(pause * 2, 10_000), body.repeated = verb === "claim" || undefined) {
    try {
      const headers = { authorization: `Bearer ${(await readFile(file, "utf8")).trim()}` };
      const sent = { method: "POST", headers, body: JSON.stringify({ worker, ...body }) };
      const answer = await fetch(`${api}/v1/pools/${pool}/${verb}`, sent);
      if (answer.ok) return await answer.json();
      console.error(verb, answer.status, await answer.text());
    } catch (error) { console.error(verb, error.message); }
    await sleep(pause * (0.5 + Math.random() / 2));
  }
}

const listed = () => [...held.values()].map(({ run }) => ({ runId: run.runId, token: run.token }));
async function make(run, until) {
  const mine = { run, until, stop: new AbortController() };
  held.set(run.runId, mine);
  const watch = setInterval(() => Date.now() > mine.until && mine.stop.abort(), 250);
  const end = { runId: run.runId, token: run.token, outcome: "Succeeded" };
  try { end.result = await handlers[run.handler](run, mine.stop.signal) ?? null; } catch ({ name, message, fatal = false }) {
    Object.assign(end, { outcome: mine.stop.signal.aborted ? "Disrupted" : "Failed", failure: { error: name, message, fatal } });
  }
  clearInterval(watch);
  if (Date.now() < mine.until && held.has(run.runId)) await call("report", { reports: [end] });
  held.delete(run.runId);
}

setInterval(async () => { // a lease counts from before its renewal was sent, and is trusted for nine tenths
  if (!held.size || Date.now() < renewed + heartbeat * 1000) return;
  const sent = renewed = Date.now();
  for (const { runId, standing } of (await call("heartbeat", { held: listed() })).held) {
    const mine = held.get(runId);
    if (standing !== "Held") mine?.stop.abort(); // Stop: end it, and report
    if (standing === "Lost") held.delete(runId); // somebody else's: end it, and report nothing
    else if (mine) mine.until = sent + lease * 900;
  }
}, 100).unref();
process.on("SIGTERM", () => { stopping = true; });
while (!stopping) {
  const max = places - held.size, sent = Date.now();
  if (max < 1) { await sleep(20); continue; }
  const ask = { requestId: randomUUID(), handlers: Object.keys(handlers), max, waitSeconds: Math.min(5, lease / 3), held: listed() };
  const { runs, ...pace } = await call("claim", ask);
  [lease, heartbeat] = [pace.leaseSeconds, pace.heartbeatSeconds];
  for (const run of runs) if (!held.has(run.runId)) make(run, sent + lease * 900);
}
