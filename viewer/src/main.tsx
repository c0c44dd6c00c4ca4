import { render } from "preact";
import { App } from "./app";
import { exportedSource, serverSource } from "./source";
import "./style.css";

const data = JSON.parse(document.getElementById("data")?.textContent ?? "null");
const app = document.getElementById("app");
if (app) render(<App source={data ? exportedSource(data) : serverSource} />, app);
