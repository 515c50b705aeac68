// Everything that goes to the server and comes from it. No address here has a host in it.

export class ServerGone extends Error {}

export class Refused extends Error {
  constructor(status, said) {
    super([said.error, said.hint].filter(Boolean).join(" ") || `The server answered with ${status}.`);
    this.status = status;
  }
}

async function ask(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ServerGone("The server does not answer.");
  }
  const said = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, said);
  return said;
}

const one = (id) => `/api/conversations/${encodeURIComponent(id)}`;

export const api = {
  about: () => ask("GET", "/api/about"),
  list: (search, cursor) =>
    ask("GET", "/api/conversations?" + new URLSearchParams({ search, ...(cursor ? { cursor } : {}) })),
  begin: (said) => ask("POST", "/api/conversations", said),
  show: (id, before) => ask("GET", one(id) + (before === undefined ? "" : `?before=${before}`)),
  say: (id, said) => ask("POST", one(id) + "/messages", said),
  answer: (id, answers) => ask("POST", one(id) + "/answers", answers),
  stop: (id) => ask("POST", one(id) + "/stop", {}),
  fork: (id, said) => ask("POST", one(id) + "/forks", said),
  model: (id, model, check) => ask("POST", one(id) + "/model", { model, check }),
  rename: (id, title) => ask("PATCH", one(id), { title }),
  remove: (id) => ask("DELETE", one(id)),
  trace: (id) => ask("GET", one(id) + "/trace"),
  exported: (id, format) => `${one(id)}/export?format=${format}`,
};

/** Follow the turn that is under way. The browser comes back by itself with the number of the last event it saw.
 *
 * `onEvents` gets events in batches, one for each frame of the screen; `onOver` is called once: with the
 * last event when the turn has ended, with null when it can no longer be followed.
 */
export function follow(id, onEvents, onOver, onState) {
  const source = new EventSource(one(id) + "/events");
  let waiting = [];
  let frame = 0;
  let over = false;
  const flush = () => {
    frame = 0;
    const events = waiting;
    waiting = [];
    if (events.length) onEvents(events);
  };
  const end = (ended) => {
    if (over) return;
    over = true;
    source.close();
    cancelAnimationFrame(frame);
    clearTimeout(frame);
    flush();
    onOver(ended);
  };
  source.onopen = () => onState("here");
  source.onmessage = (message) => {
    const event = JSON.parse(message.data);
    waiting.push(event);
    if (event.type === "turn_ended") return end(event);
    if (!frame) frame = document.hidden ? setTimeout(flush, 100) : requestAnimationFrame(flush);
  };
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) end(null);
    else onState("gone");
  };
  return () => {
    over = true;
    source.close();
  };
}
