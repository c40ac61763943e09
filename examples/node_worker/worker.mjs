// A complete Holdfast worker in plain Node.js (18 or newer), without packages.
//
//   HOLDFAST_URL=http://127.0.0.1:8080 HOLDFAST_TOKEN=hf_… node worker.mjs
//
//   claim (waits for work) ──► run, with a heartbeat at a third of the lease ──► say how it ended
//
// It says how an attempt ended; what follows (a retry and when, a dead letter) the dispatcher decides. On SIGTERM it
// claims no more, finishes what runs, and goes. Whatever it leaves behind is rescued when the lease runs out.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const URL_BASE = (process.env.HOLDFAST_URL ?? "http://127.0.0.1:8080").replace(/\/$/, "");
const TOKEN = process.env.HOLDFAST_TOKEN;
const QUEUES = process.env.HOLDFAST_QUEUES?.split(",") ?? null;
const SLOTS = Number(process.env.HOLDFAST_CONCURRENCY ?? 10);
const LEASE_SECONDS = 30;
const WAIT_SECONDS = 5;
const KNOWN_SECONDS = 10;
const WORKER_ID = `${hostname()}-node-${process.pid}-${randomUUID().slice(0, 8)}`;

class Snooze extends Error {
  constructor(delayMs) { super("snoozed"); this.delayMs = delayMs; }
}
class Unrecoverable extends Error {}

// Your tasks, by name. What they return is the result (JSON). `signal` is aborted when the lease is lost or somebody
// cancels the task. Calls from Python come as {args: […], kwargs: {…}}.
const handlers = {
  async add({ args: [a, b] }) { return a + b; },
  async slow({ args: [ms] }, { signal }) { await sleep(ms, undefined, { signal }); return "slept"; },
  async later(_payload, { attempt }) { if (attempt === 1) throw new Snooze(50); return attempt; },
  async broken() { throw new Error("always broken"); },
  async hopeless() { throw new Unrecoverable("will never work"); },
};

// One try at a call: [status, body]. Throws where it is open whether it happened.
async function post(path, body) {
  const answer = await fetch(URL_BASE + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...(TOKEN && { authorization: `Bearer ${TOKEN}` }) },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  });
  if (answer.status === 401 || answer.status === 403) throw new Unrecoverable(await answer.text());
  if (answer.status >= 500) throw new Error(`the dispatcher answered ${answer.status}`);
  return [answer.status, await answer.json()];
}

// The same, however long the dispatcher is away: every call is safe to repeat.
async function call(path, body) {
  for (let pause = 100; ; pause = Math.min(2 * pause, 5000)) {
    try {
      return await post(path, body);
    } catch (error) {
      if (error instanceof Unrecoverable) throw error;
      await sleep(pause * (0.5 + Math.random()));
    }
  }
}

async function run(claim) {
  const lease = { task_id: claim.task_id, attempt: claim.attempt, lease_token: claim.lease_token };
  const stop = new AbortController();
  const heard = ([status, answer]) => {
    if (status !== 200) stop.abort(new Error("lease lost"));
    else if (answer.cancel_requested) stop.abort(new Error("canceled"));
  };
  const missed = () => {}; // the next heartbeat follows
  const beat = setInterval(() => post("/internal/heartbeat", lease).then(heard, missed), claim.lease_seconds * 1000 / 3);
  const end = await outcome(claim, stop.signal);
  clearInterval(beat);
  const [status] = await call("/internal/task-complete", { ...lease, ...end });
  console.log(JSON.stringify({ task: claim.task_id, name: claim.name, ...end, recorded: status === 200 }));
}

async function outcome(claim, signal) {
  const handler = handlers[claim.name];
  if (!handler) return { status: "snoozed", delay_ms: 30_000 }; // another version of this worker may know it
  try {
    const result = await handler(claim.payload, { attempt: claim.attempt, signal });
    return { status: "completed", result: result ?? null };
  } catch (error) {
    if (signal.aborted) return { status: "canceled" };
    if (error instanceof Snooze) return { status: "snoozed", delay_ms: error.delayMs };
    const unrecoverable = error instanceof Unrecoverable;
    return { status: "failed", error: { message: String(error), code: error.name, stack: error.stack, unrecoverable } };
  }
}

// So that `holdfast workers`, `tasks why` and `doctor` know of it. Nothing else depends on it.
const known = () => post("/v1/workers", {
  id: WORKER_ID, host: hostname(), pid: process.pid, queues: QUEUES, concurrency: SLOTS, names: Object.keys(handlers),
}).catch(() => {});
const gone = () => post("/v1/workers/leave", { worker_id: WORKER_ID }).catch(() => {});

let stopping = false;
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => { stopping = true; });

const running = new Set();
console.log(JSON.stringify({ worker: WORKER_ID, url: URL_BASE }));
await known();
const seen = setInterval(known, KNOWN_SECONDS * 1000);
while (!stopping) {
  if (running.size >= SLOTS) { await Promise.race(running); continue; }
  const [status, answer] = await call("/v1/claims", {
    worker_id: WORKER_ID,
    claim_id: randomUUID(), // repeated after a lost answer, it gets the same leases
    queues: QUEUES,
    limit: SLOTS - running.size,
    lease_seconds: LEASE_SECONDS,
    wait_seconds: running.size ? 0.2 : WAIT_SECONDS,
  });
  if (status !== 200) throw new Error(`${answer.code}: ${answer.detail}`);
  for (const claim of answer.claims) {
    const ended = run(claim).finally(() => running.delete(ended));
    running.add(ended);
  }
}
await Promise.all(running);
clearInterval(seen);
await gone();
