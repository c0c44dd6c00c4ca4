/** One chat message: role, text, images, tool calls. All text is text. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { asText, count, isImageData, prettyJson, visible, wholeToken } from "./text";
import type { ContentPart, Message, ToolCall } from "./types";

const LONG = 6000; // characters that are shown at first
const ROLES: Record<string, string> = { system: "System", user: "User", assistant: "Agent", tool: "Tool" };

interface Props {
  message: Message;
  /** instead of the text */
  children?: ComponentChildren;
  label?: string;
}

export function MessageView({ message, children, label }: Props) {
  const role = ROLES[asText(message.role)] ?? visible(asText(message.role));
  const kind = asText(message.role) in ROLES ? message.role : "other";
  return (
    <article class={`message ${kind}`} aria-label={`${role}'s message`}>
      <div class="role">
        {role}
        {message.name && <small>{visible(asText(message.name))}</small>}
        {message.tool_call_id && <small>answers {visible(asText(message.tool_call_id))}</small>}
        {label && <small>{label}</small>}
      </div>
      <div class="body">
        {message.thinking && <details open class="thinking"><summary>Thinking</summary><Text text={asText(message.thinking)} /></details>}
        {children ?? <Content content={message.content} />}
        {Array.isArray(message.tool_calls) && message.tool_calls.map((call) => <ToolCallView call={call} />)}
      </div>
    </article>
  );
}

function Content({ content }: { content: Message["content"] }) {
  if (!Array.isArray(content)) return content ? <Text text={asText(content)} /> : null;
  return <>{content.map((part) => <Part part={part} />)}</>;
}

function Part({ part }: { part: ContentPart }) {
  if (typeof part?.text === "string") return <Text text={part.text} />;
  const kind = part?.video_url ? "video" : "image";
  const url = (part?.video_url ?? part?.image_url)?.url;
  if (isImageData(url)) return <img src={url} alt={kind === "video" ? "Video in the message" : "Image in the message"} />;
  return <p class="dim">[{kind} that is not inside the record: {visible(asText(url).slice(0, 200))}]</p>;
}

/** Text with its line breaks; the rest of a long one on request. */
export function Text({ text, kind = "text" }: { text: string; kind?: string }) {
  const [open, setOpen] = useState(false);
  const isLong = text.length > LONG;
  return (
    <>
      <div class={kind} dir="auto">{shownText(open || !isLong ? text : text.slice(0, LONG))}</div>
      {isLong && (
        <button class="more" onClick={() => setOpen(!open)}>
          {open ? "Show less" : `Show all ${count(text.length, "character")}`}
        </button>
      )}
    </>
  );
}

/** Of a text without ink its line feeds and spaces are shown. */
const shownText = (text: string) => (text.trim() ? visible(text) : <span class="dim">{wholeToken(text)}</span>);

function ToolCallView({ call }: { call: ToolCall }) {
  return (
    <div class="tool-call">
      <div><b>{visible(asText(call?.function?.name))}</b> <small>{visible(asText(call?.id))}</small></div>
      <Text text={prettyJson(call?.function?.arguments)} kind="text code" />
      {call?.error && <p class="bad">✗ {visible(asText(call.error))}</p>}
    </div>
  );
}
