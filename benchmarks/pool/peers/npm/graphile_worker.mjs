// graphile-worker, set as its page on performance does for throughput. It deletes what it has completed; to keep a row of each job
// as the others do, the rows that a statement deletes are copied by one trigger call.
import { run, makeWorkerUtils, runMigrations, Logger } from "graphile-worker";
import pg from "pg";
import { inParts, main, next } from "./peer.mjs";

const KEEP = `
CREATE TABLE kept_jobs (LIKE graphile_worker._private_jobs, completed_at timestamptz NOT NULL DEFAULT now());
CREATE FUNCTION keep_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO kept_jobs SELECT * FROM gone; RETURN NULL; END $$;
CREATE TRIGGER keep_jobs AFTER DELETE ON graphile_worker._private_jobs
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION keep_jobs();
`;
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));

async function prepare(url, mode) {
  await runMigrations({ connectionString: url, logger });
  if (mode === "raw") return;
  const client = new pg.Client(url);
  await client.connect();
  await client.query(KEEP);
  await client.end();
}

async function fill(url, count, runAt) {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await inParts(count, (payload) => ({ identifier: "work", payload, runAt }), (jobs) => utils.addJobs(jobs));
  await utils.release();
}

async function work(url, mode, telling) {
  const job = async (payload, helpers) => {
    telling.note(1);
    if (mode === "recurring") await helpers.addJob("work", payload, { runAt: next() });
  };
  const worker = {
    connectionString: url,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  };
  await run({ preset: { worker }, logger, taskList: { work: job } });
}

await main({ prepare, fill, work });
