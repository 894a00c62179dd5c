// What a program does with the types that openapi-typescript generates. tsc checks it; it never runs.
import type { components, operations, paths } from "./seb";

type Append = paths["/v1/topics/{topic}/records"]["post"];
export const body: NonNullable<Append["requestBody"]>["content"]["application/vnd.seb.records+json"] = {
  records: [{ key: "42", value: "paid", headers: { tag: ["a", "b"], source: "shop" } }],
};

type Page = operations["readRecords"]["responses"][200]["content"]["application/json"];
export const values = (page: Page): (string | null | undefined)[] => page.records.map((record) => record.value);

export const retry = (problem: components["schemas"]["Problem"]): boolean => problem.outcome !== "not_committed";

// The types are not any: these lines must not compile.
// @ts-expect-error
export const offset: components["schemas"]["Record"]["offset"] = "0";
// @ts-expect-error
export const scope: components["schemas"]["Scope"] = "owner";
// @ts-expect-error
export const outcome: components["schemas"]["Problem"]["outcome"] = "perhaps";
