"use strict";

// Shows /openapi.json. All text is set as text, never as markup.

const METHODS = ["get", "post", "put", "patch", "delete"];

function make(tag, text, more) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  Object.assign(node, more || {});
  return node;
}

function add(parent, ...nodes) {
  for (const node of nodes) if (node) parent.append(node);
  return parent;
}

function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.type === "array") return schema.items ? "list of " + typeOf(schema.items) : "list";
  if (schema.additionalProperties && typeof schema.additionalProperties === "object")
    return "map of " + typeOf(schema.additionalProperties);
  return schema.type || "any";
}

function refsOf(schema, found) {
  if (schema === null || typeof schema !== "object") return found;
  if (typeof schema.$ref === "string") found.push(schema.$ref.split("/").pop());
  for (const one of Object.values(schema)) refsOf(one, found);
  return found;
}

function table(heads, rows) {
  const body = make("table");
  add(body, add(make("tr"), ...heads.map((head) => make("th", head))));
  for (const row of rows)
    add(body, add(make("tr"), ...row.map((cell, at) => at < 2 ? add(make("td"), make("code", cell)) : make("td", cell))));
  return body;
}

function structs(schema, api, seen) {
  const nodes = [];
  for (const name of refsOf(schema, [])) {
    const struct = api.components.schemas[name];
    if (seen.has(name) || !struct || !struct.properties) continue;
    seen.add(name);
    const required = new Set(struct.required || []);
    const rows = Object.entries(struct.properties).map(([field, one]) => [
      field, typeOf(one), (one.description || "") + (required.has(field) ? "" : " Optional."),
    ]);
    nodes.push(add(make("details"), make("summary", name + ": " + (struct.description || "")), table(["field", "type", ""], rows)));
    nodes.push(...structs(struct.properties, api, seen));
  }
  return nodes;
}

function quoted(text) {
  return "'" + text.replaceAll("'", "'\\''") + "'";
}

function curl(path, method, call) {
  const query = [];
  const words = ["curl"];
  if (method !== "get") words.push("-X", method.toUpperCase());
  for (const one of call.parameters || []) {
    if (one.example === undefined) continue;
    const value = String(one.example);
    if (one.in === "path") path = path.replace("{" + one.name + "}", encodeURIComponent(value));
    if (one.in === "query") query.push(one.name + "=" + encodeURIComponent(value));
    if (one.in === "header") words.push("-H", quoted(one.name + ": " + value));
  }
  const url = location.origin + path + (query.length ? "?" + query.join("&") : "");
  words.push(quoted(url));
  for (const [media, content] of Object.entries((call.requestBody || {}).content || {})) {
    const first = Object.values(content.examples || {})[0];
    if (!first) continue;
    const data = typeof first.value === "string" ? first.value : JSON.stringify(first.value);
    words.push("-H", quoted("Content-Type: " + media), "--data-binary", quoted(data));
    break;
  }
  return words.join(" ");
}

function examples(content) {
  const nodes = [];
  for (const [media, one] of Object.entries(content || {})) {
    nodes.push(add(make("p"), make("code", media), make("span", one.schema ? " " + typeOf(one.schema) : "")));
    for (const example of Object.values(one.examples || {})) nodes.push(make("p", example.summary), make("pre", shown(example.value)));
  }
  return nodes;
}

function callNode(path, method, call, api) {
  const node = make("details", null, { id: call.operationId });
  const title = add(make("summary"), make("span", method.toUpperCase(), { className: "method" }), make("code", path), make("span", call.summary));
  add(node, title, call.description ? make("p", call.description) : null, make("h3", "Example"), make("pre", curl(path, method, call)));
  if (call.parameters.length) {
    const rows = call.parameters.map((one) => [one.name, typeOf(one.schema), one.in + ". " + one.description]);
    add(node, make("h3", "Parameters"), table(["name", "type", ""], rows));
  }
  if (call.requestBody) add(node, make("h3", "Body"), ...examples(call.requestBody.content));
  add(node, make("h3", "Answers"));
  for (const [status, answer] of Object.entries(call.responses)) {
    const problem = (answer.content || {})["application/problem+json"];
    const one = make("details", null, { open: !problem });
    add(node, add(one, make("summary", status + " " + answer.description), ...examples(answer.content)));
  }
  const found = structs([call.requestBody, call.responses], api, new Set(["Problem"]));
  if (found.length) add(node, make("h3", "Types"), ...found);
  return node;
}

function show(api) {
  document.getElementById("about").textContent = api.info.description;
  const calls = document.getElementById("calls");
  const contents = document.getElementById("contents");
  const shownCalls = [];
  for (const tag of api.tags) {
    const section = make("section");
    const list = make("div");
    add(section, make("h2", tag.name), make("p", tag.description));
    add(list, make("h2", tag.name));
    for (const [path, methods] of Object.entries(api.paths))
      for (const method of METHODS) {
        const call = methods[method];
        if (!call || !call.tags.includes(tag.name)) continue;
        const node = callNode(path, method, call, api);
        const link = make("a", call.operationId, { href: "#" + call.operationId });
        add(section, node);
        add(list, link);
        shownCalls.push({ node, link, words: [path, method, call.operationId, call.summary].join(" ").toLowerCase() });
      }
    add(calls, section);
    add(contents, list);
  }
  document.getElementById("search").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase().trim();
    for (const one of shownCalls) one.node.hidden = one.link.hidden = !one.words.includes(wanted);
  });
  const open = () => {
    const node = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (node && node.tagName === "DETAILS") { node.open = true; node.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  open();
}

fetch("/openapi.json").then((answer) => {
  if (!answer.ok) throw new Error("status " + answer.status);
  return answer.json();
}).then(show).catch((error) => {
  document.getElementById("about").textContent = "/openapi.json cannot be shown: " + error.message;
});
