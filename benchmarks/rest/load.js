// What clients do, each its own function; which one runs, how many and for how long comes from the environment.
import http from 'k6/http';
import { Counter } from 'k6/metrics';

const url = __ENV.URL;
const params = { headers: { Authorization: `Bearer ${__ENV.TOKEN}`, 'Content-Type': 'application/json' } };
const expressions = Number(__ENV.EXPRESSIONS);
const batch = Number(__ENV.BATCH);
const text = 'x'.repeat(189);
const made = new Counter('made');
const good = new Counter('good');
const shed = new Counter('shed');
const failed = new Counter('failed');

const scenario = __ENV.RATE
  ? {
      executor: 'constant-arrival-rate',
      rate: Number(__ENV.RATE),
      timeUnit: '1s',
      preAllocatedVUs: Number(__ENV.CLIENTS),
      duration: __ENV.DURATION,
    }
  : { executor: 'constant-vus', vus: Number(__ENV.CLIENTS), duration: __ENV.DURATION };

export const options = {
  scenarios: { load: { ...scenario, exec: __ENV.WHAT, gracefulStop: '10s' } },
  summaryTrendStats: ['med', 'p(99)', 'max'],
  discardResponseBodies: true,
};

// slots that do not come while this runs
function job(number) {
  const kind = number % expressions;
  return { schedule: `${kind % 60} ${Math.floor(kind / 60)} 1 1 *`, handler: 'work', pool: 'jobs', payload: { text } };
}

function count(response, expected, jobs) {
  if (response.status === expected) {
    good.add(1);
    made.add(jobs);
  } else if (response.status === 503) {
    shed.add(1);
  } else {
    failed.add(1);
    console.error(`${response.status} ${response.error}`);
  }
}

let number = 0;

export function create() {
  number += 1;
  count(http.post(`${url}/v1/jobs`, JSON.stringify(job(number)), params), 201, 1);
}

export function createMany() {
  const jobs = [];
  for (let at = 0; at < batch; at += 1) jobs.push(job(at));
  count(http.post(`${url}/v1/jobs:batch`, JSON.stringify(jobs), params), 200, batch);
}

export function list() {
  count(http.get(`${url}${__ENV.PATH_LISTED}`, params), 200, 0);
}

export function handleSummary(data) {
  const of = (name, key) => (data.metrics[name] ? data.metrics[name].values[key] : 0);
  const told = {
    good: of('good', 'count'),
    made: of('made', 'count'),
    shed: of('shed', 'count'),
    failed: of('failed', 'count'),
    p50: of('http_req_duration', 'med'),
    p99: of('http_req_duration', 'p(99)'),
    longest: of('http_req_duration', 'max'),
    seconds: data.state.testRunDurationMs / 1000,
  };
  return { [__ENV.SUMMARY]: JSON.stringify(told) };
}
