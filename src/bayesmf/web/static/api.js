// The service, as schemas.py describes it. Addresses are relative, so that a prefix does not matter.

const TOKEN = "bayesmf-token"; // of this tab alone, and gone with it
const LEVEL = 0.9; // of every interval on the page: "9 times in 10"

export class ServiceError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

let onToken = null;
let onVersion = null;
const versions = new Set(); // seen so far: workers may alternate while a model is swapped

// askForToken() resolves once a token has been typed; versionChanged() is called for a new model.
export function listen({ askForToken, versionChanged }) {
  onToken = askForToken;
  onVersion = versionChanged;
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

async function ask(path, options = {}) {
  for (;;) {
    const used = sessionStorage.getItem(TOKEN);
    const headers = { accept: "application/json", ...options.headers };
    if (used) headers.authorization = `Bearer ${used}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServiceError("The service cannot be reached. Is it still running?", 0);
    }
    if (response.status === 401 && onToken) {
      // The token may have been entered for another request.
      if (sessionStorage.getItem(TOKEN) === used) await onToken(await detail(response));
      continue;
    }
    if (!response.ok) throw new ServiceError(await detail(response), response.status);
    const answer = parse(await response.text());
    noticeVersion(answer.model_version);
    return answer;
  }
}

async function detail(response) {
  try {
    const said = JSON.parse(await response.text());
    if (typeof said.detail === "string") return said.detail;
  } catch {
    // Not an answer of the service: perhaps a proxy's page.
  }
  return `The service answered ${response.status} ${response.statusText}`.trim();
}

function noticeVersion(now) {
  if (versions.has(now)) return;
  versions.add(now);
  if (versions.size > 1) onVersion?.();
}

// Ids have up to 64 bits, numbers here 53: larger ones are BigInt, where the browser supports it.
function parse(text) {
  return JSON.parse(text, (key, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}

function written(body) {
  return JSON.stringify(body, (key, value) =>
    typeof value === "bigint" ? (JSON.rawJSON?.(String(value)) ?? String(value)) : value,
  );
}

function get(path, query, signal) {
  const given = new URLSearchParams(
    Object.entries(query).map(([key, value]) => [key, String(value)]),
  );
  return ask(given.size ? `${path}?${given}` : path, { signal });
}

function post(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return ask(path, { method: "POST", headers, body: written(body), signal });
}

export const api = {
  model: () => get("v1/model", {}),
  items: (q, n, signal) => get("v1/items", { q, n }, signal),
  item: (id, signal) => get("v1/item", { item: id, level: LEVEL }, signal),
  similar: (item, n, signal) => get("v1/similar", { item, n }, signal),
  user: (id, n, signal) => get("v1/user", { user: id, n }, signal),
  recommend: (body, signal) => post("v1/recommend", { level: LEVEL, ...body }, signal),
  predict: (body, signal) => post("v1/predict", body, signal),
  explain: (body, signal) => post("v1/explain", body, signal),
};
