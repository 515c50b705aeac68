// The real HttpAgent of @ag-ui/client, talking to our app. Prints what it saw as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [home, url, scenario] = process.argv.slice(2);
const load = async (name) => import(pathToFileURL(createRequire(home + "/x.js").resolve(name)).href);
const { HttpAgent } = await load("@ag-ui/client");

const agent = new HttpAgent({ url, threadId: "thread-" + scenario });
const events = [];
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
await scenarios[scenario]();
console.log(JSON.stringify({ events, messages: agent.messages }));
process.exit(0);
