// What both npm peers need around them: a command line, a payload, and telling how many jobs were handled.

const TELL_EVERY_MS = 50;
const IN_ONE_CALL = 5_000;

const payload = { text: "x".repeat(189) };

/** Runs one step of a peer: `prepare URL MODE`, `fill URL MODE COUNT DUE`, `work URL MODE`; a mode is same, recurring or raw. */
export async function main({ prepare, fill, work }) {
  const [step, url, mode, count, due] = process.argv.slice(2);
  if (step === "prepare") await prepare(url, mode);
  if (step === "fill") await fill(url, Number(count), mode === "raw" ? undefined : new Date(Number(due) * 1000));
  if (step === "work") await work(url, mode, new Telling());
  else process.exit(0);
}

/** When the run after this one is due. */
export const next = () => new Date(Date.now() + 3_600_000);

/** Calls `store` with parts of `count` jobs, each made by `job` from the payload. */
export async function inParts(count, job, store) {
  for (let left = count; left > 0; left -= IN_ONE_CALL) {
    await store(Array.from({ length: Math.min(left, IN_ONE_CALL) }, () => job(payload)));
  }
}

/** Prints when the first job was handled, and how many were, whenever that has changed. */
class Telling {
  handled = 0;
  first = 0;
  #told = 0;

  constructor() {
    setInterval(() => this.#tell(), TELL_EVERY_MS);
  }

  note(jobs) {
    this.first ||= Date.now() / 1000;
    this.handled += jobs;
  }

  #tell() {
    if (this.handled === this.#told) return;
    this.#told = this.handled;
    console.log(JSON.stringify({ at: Date.now() / 1000, first: this.first, handled: this.handled }));
  }
}
