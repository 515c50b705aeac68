// The real HttpAgent of @ag-ui/client, talking to our app. Prints what it saw in each scenario as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [home, url, ...names] = process.argv.slice(2);
const load = async (name) => import(pathToFileURL(createRequire(home + "/x.js").resolve(name)).href);
const { HttpAgent } = await load("@ag-ui/client");

let agent, events;
const subscriber = { onEvent: ({ event }) => void events.push(event) };
const say = (text) => agent.addMessage({ id: "u" + Math.random(), role: "user", content: text });
const run = async (parameters = {}) => {
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (error) {
    events.push({ type: "THROWN", message: String(error.message ?? error) });
  }
};
const scenarios = {
  async plain() {
    say("Hello");
    await run();
  },
  async approvals() {
    say("Pay");
    await run();
    const interrupts = events.at(-1).outcome.interrupts;
    const pay = (payload) => interrupts.map((each) => ({ interruptId: each.id, status: "resolved", payload }));
    await run({ resume: pay({ approved: true }) });
  },
};
const results = {};
for (const scenario of names) {
  agent = new HttpAgent({ url, threadId: "thread-" + scenario });
  events = [];
  await scenarios[scenario]();
  results[scenario] = { events, messages: agent.messages };
}
console.log(JSON.stringify(results));
process.exit(0);
