// The real Chat of @ai-sdk/react (what useChat holds), talking to our app. Prints what it saw in each scenario as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [home, api, ...names] = process.argv.slice(2);
const load = async (name) => import(pathToFileURL(createRequire(home + "/x.js").resolve(name)).href);
const { Chat } = await load("@ai-sdk/react");
const { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } = await load("ai");

let scenario, seen;
const make = (options = {}) =>
  new Chat({
    id: "talk-" + scenario,
    transport: new DefaultChatTransport({ api }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onError: (error) => seen.push("error: " + error.message),
    ...options,
  });
const settled = async (chat) => {
  for (let turn = 0; turn < 600; turn++) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    if (chat.status === "ready" || chat.status === "error") {
      await new Promise((resolve) => setTimeout(resolve, 60));
      if (chat.status === "ready" || chat.status === "error") return;
    }
  }
};
const parts = (chat) =>
  chat.messages.map((message) => [message.role, message.parts.map((part) => ({ ...part, callProviderMetadata: undefined }))]);

const scenarios = {
  async plain() {
    const chat = make();
    await chat.sendMessage({ text: "Hello" });
    await chat.sendMessage({
      text: "And this?",
      files: [{ type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=", filename: "a.png" }],
    });
    return { messages: parts(chat), metadata: chat.messages.at(-1).metadata };
  },
  async approvals() {
    const chat = make();
    await chat.sendMessage({ text: "Pay" });
    await settled(chat);
    const asked = chat.lastMessage.parts.filter((part) => part.state === "approval-requested");
    await chat.addToolApprovalResponse({ id: asked[0].approval.id, approved: true });
    await settled(chat);
    await chat.sendMessage({ text: "Pay again" });
    await settled(chat);
    const again = chat.lastMessage.parts.filter((part) => part.state === "approval-requested");
    await chat.addToolApprovalResponse({ id: again[0].approval.id, approved: false, reason: "too dear" });
    await settled(chat);
    return { asked: asked.length, messages: parts(chat) };
  },
  async edit() {
    const chat = make();
    await chat.sendMessage({ text: "One" });
    await chat.sendMessage({ text: "Two" });
    await chat.sendMessage({ text: "Two, edited", messageId: chat.messages[2].id });
    await chat.regenerate();
    return { messages: parts(chat) };
  },
  async resume() {
    const first = make();
    first.sendMessage({ text: "Slowly" });
    while (!(first.lastMessage?.role === "assistant" && first.lastMessage.parts.some((part) => part.text)))
      await new Promise((resolve) => setTimeout(resolve, 5));
    first.stop();
    const saved = await (await fetch(api + "/talk-resume")).json();
    const again = make({ messages: saved.slice(0, 1) });
    await again.resumeStream();
    return { messages: parts(again) };
  },
  async fail() {
    const chat = make();
    await chat.sendMessage({ text: "Hello" });
    return { status: chat.status, messages: parts(chat) };
  },
};
const results = {};
for (scenario of names) {
  seen = [];
  results[scenario] = { ...(await scenarios[scenario]()), seen };
}
console.log(JSON.stringify(results));
process.exit(0);
