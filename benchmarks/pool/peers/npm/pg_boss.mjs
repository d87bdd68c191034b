// pg-boss: batches without a pause while they come back full. To settle each job by itself is the same work as ours; without that a
// batch is completed as a whole.
import { PgBoss } from "pg-boss";
import { inParts, main, next } from "./peer.mjs";

const QUEUE = "work";

async function started(url, options) {
  const boss = new PgBoss({ connectionString: url, schedule: false, ...options });
  boss.on("error", (error) => console.error(error));
  return boss.start();
}

async function prepare(url) {
  const boss = await started(url);
  await boss.createQueue(QUEUE);
  await boss.stop({ graceful: false });
}

async function fill(url, count, startAfter) {
  const boss = await started(url, { supervise: false });
  await inParts(count, (data) => ({ data, startAfter }), (jobs) => boss.insert(QUEUE, jobs));
  await boss.stop({ graceful: false });
}

async function work(url, mode, telling) {
  const each = mode !== "raw";
  const boss = await started(url, { max: 10 });
  const options = {
    batchSize: 500,
    localConcurrency: 4,
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
    perJobResults: each,
  };
  await boss.work(QUEUE, options, async (jobs) => {
    telling.note(jobs.length);
    if (mode === "recurring") await boss.insert(QUEUE, jobs.map(({ data }) => ({ data, startAfter: next() })));
    return each ? jobs.map(({ id }) => ({ id, status: "completed" })) : undefined;
  });
}

await main({ prepare, fill, work });
