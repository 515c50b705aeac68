// A turn while it comes: its events become messages of the same form as those that the server keeps.

export const nothing = (base, said) => ({ base, said, messages: [], running: {}, usage: null });

const last = (live) => live.messages[live.messages.length - 1];

function changed(live, change) {
  const message = last(live);
  return { ...live, messages: [...live.messages.slice(0, -1), { ...message, ...change(message) }] };
}

function part(live, event, change) {
  return changed(live, (message) => ({
    blocks: message.blocks.map((block) => (block.part === event.index ? { ...block, ...change(block) } : block)),
  }));
}

const added = (live, event, block) =>
  changed(live, (message) => ({ blocks: [...message.blocks, { ...block, part: event.index, open: true }] }));

const reply = (live, event) => ({
  ...live,
  messages: [
    ...live.messages,
    { role: "assistant", live: true, blocks: [], model: event.model ? `${event.provider}:${event.model}` : undefined },
  ],
});

const steps = {
  reply_started: reply,
  text_started: (live, event) => added(live, event, { type: "text", text: "" }),
  text_delta: (live, event) => part(live, event, (block) => ({ text: block.text + event.text })),
  text_ended: (live, event) => part(live, event, () => ({ open: false })),
  thinking_started: (live, event) => added(live, event, { type: "thinking", text: "" }),
  thinking_delta: (live, event) => part(live, event, (block) => ({ text: block.text + event.text })),
  thinking_ended: (live, event) => part(live, event, () => ({ open: false })),
  tool_call_started: (live, event) =>
    added(live, event, { type: "tool_call", id: event.id, name: event.name, arguments: "" }),
  tool_call_delta: (live, event) => part(live, event, (block) => ({ arguments: block.arguments + event.arguments })),
  tool_call_ended: (live, event) => part(live, event, () => ({ open: false })),
  block_received: (live, event) =>
    event.block.type === "media" && event.block.data
      ? added(live, event, {
          type: "media",
          kind: event.block.kind,
          mime_type: event.block.mime_type,
          image: /^image\/(png|jpeg|gif|webp)$/.test(event.block.mime_type),
          url: `data:${event.block.mime_type};base64,${event.block.data}`,
        })
      : live,
  usage_reported: (live, event) => (live.messages.length ? changed(live, () => ({ usage: event.usage })) : live),
  completed: (live) => changed(live, () => ({ live: false })),
  tool_started: (live, event) => ({ ...live, running: { ...live.running, [event.call.id]: Date.now() } }),
  tool_finished: (live, event) => {
    const result = event.result;
    const text = (result.content ?? [])
      .map((each) => (each.type === "text" ? each.text : each.type === "json" ? JSON.stringify(each.raw) : ""))
      .join("\n");
    const { [result.call_id]: _, ...running } = live.running;
    const block = { ...result, type: "tool_result", text, media: [] };
    const before = last(live);
    // All results of one reply stand in one message, as they do on the server.
    if (before?.role === "tool") return { ...changed(live, () => ({ blocks: [...before.blocks, block] })), running };
    return { ...live, running, messages: [...live.messages, { role: "tool", blocks: [block] }] };
  },
};

/** The turn after these events. An event that nobody knows changes nothing. */
export const after = (live, events) =>
  events.reduce(
    (state, event) =>
      steps[event.type] && (state.messages.length || !/^(text|thinking|tool_call|block|completed)/.test(event.type))
        ? steps[event.type](state, event)
        : state,
    live,
  );

/** Which result belongs to which call: results stand in messages behind that of their calls. */
export function resultsOf(messages) {
  const found = new Map();
  let calls = new Map();
  for (const message of messages) {
    if (message.role === "assistant")
      calls = new Map(message.blocks.filter((block) => block.type === "tool_call").map((block) => [block.id, block]));
    else if (message.role === "tool")
      for (const block of message.blocks) if (calls.has(block.call_id)) found.set(calls.get(block.call_id), block);
  }
  return found;
}
