#include "convoy/job/manual.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/job/fields.hpp"
#include "convoy/job/value.hpp"

namespace convoy::job {
namespace {

constexpr size_t kColumns = 90;

constexpr std::string_view kPreface = R"(# The job file

<!-- Written by `convoy config --markdown > docs/job.md` from the field table in
     convoy/job/fields.cpp. Change it there. -->

A job says what to train, on what and how. It is one YAML file, for `convoy train job.yaml`:

```yaml
model: resnet-20
data: {kind: cifar10, path: data/cifar10}
train: {batch: 128, epochs: 30, lr: {peak: 0.4, schedule: one-cycle}, momentum: 0.9,
        weight_decay: 5e-4, seed: 1}
sync: {mode: balanced, reproducible: true}
```

Only `model` and `data` are needed; every other key has a default. `convoy config` prints a job with
all keys, their defaults and what they mean, to start from.

## Where a value comes from

The last of these counts:

1. the default,
2. the file,
3. `--set KEY=VALUE` on the command line, as often as needed, the last one of a key counting.

A key of `--set` is the whole path, a value is YAML:

```sh
convoy train job.yaml --set train.batch=256 --set train.lr=0.2
convoy train job.yaml --set 'data.augment={flip: true, pad_crop: 4}' --set train.max_time=10min
convoy train job.yaml --set model=resnet-56 --set model.classes=100
```

`job.yaml` in the run's folder holds the outcome, with every key. It can be run again.

## When something is wrong

Unknown keys, wrong types and values out of range are refused before anything starts, all at once,
with exit code 2:

```text
job.yaml:3: train.bacth: unknown key; did you mean train.batch? accepted in train: batch, epochs, …
job.yaml:5: engine.grain: 24 does not divide train.batch (128); nearest that do: 16 and 32
--set train.epochs=many: train.epochs: 'many' is not a number; accepted: numbers above 0
```

## How values are written

| value | is written |
|---|---|
| whole number | `128`, `1e6` |
| number | `0.1`, `5e-4` |
| true or false | `true`, `false`; also `yes`, `no`, `on`, `off` |
| list | `[0.49, 0.48, 0.45]`; a single value is a list of one |
| time | `90s`, `10min`, `1h 30min`, `2d`; a bare number is seconds |
| amount of memory | `512MiB`, `1.5GB`; a bare number is bytes |

Where 0 has a meaning of its own, a word says so (`auto`, `off`, `all`); `0` is accepted, too.

## The keys
)";

constexpr std::string_view kExamples = R"(
## Complete jobs

A small network on Fashion-MNIST, stopping when it no longer improves:

```yaml
model: lenet
data:
  kind: idx
  path: data/fashion-mnist
  augment: {flip: true, pad_crop: 2}
train:
  batch: 64
  epochs: 20
  lr: {peak: 0.05, schedule: cosine, warmup_epochs: 1}
  weight_decay: 5e-4
  patience: 4
  max_time: 10min
```

A network of your own, with blocks that repeat:

```yaml
model:
  input: [1, 28, 28]
  layers:
    - conv: {out: 32, kernel: 3, pad: 1}
    - relu
    - repeat: 3
      name: stage
      layers:
        - {conv: {out: 32, kernel: 3, pad: 1, bias: false}, name: a}
        - batch-norm
        - {add: {}, from: [previous, start]}
        - relu
    - global-average-pool
    - linear: 10
    - softmax-cross-entropy
data: {kind: idx, path: data/mnist}
train: {optimizer: adam, lr: 1e-3, epochs: 5}
```

The recipe of the literature for ImageNet shapes, on synthetic data, to see how fast it goes:

```yaml
model: {name: resnet-50, classes: 1000}
data: {kind: synthetic, shape: [3, 224, 224], classes: 1000, size: 4096}
train:
  batch: 32
  epochs: 90
  max_time: 2min
  lr: {peak: 0.1, schedule: multi-step, milestones: [30, 60, 80], warmup_epochs: 5, base_batch: 256}
  weight_decay: 1e-4
  decay_all: false
  label_smoothing: 0.1
engine: {lanes: auto, memory: 8GiB}
```
)";

/// Breaks `text` at spaces so that lines with their prefix fit the columns.
std::string wrapped(std::string_view text, const std::string& prefix) {
  std::string out;
  std::string line;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (!line.empty() && prefix.size() + line.size() + 1 + word.size() > kColumns) {
      out += prefix + line + "\n";
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return line.empty() ? out : out + prefix + line + "\n";
}

std::string sentences(const std::string& help, const std::string& more) {
  return more.empty() ? help : help + " " + more;
}

/// The default as the manual shows it: "128", "auto", "none", or "required".
std::string shown_default(const Field& field) {
  if (field.required) return "required";
  const std::string value = print_value(field, Job{});
  const bool is_empty = value == "[]" || value == "\"\"";
  return is_empty && !field.empty.empty() ? field.empty : value;
}

std::string accepted_with_unit(const Field& field) {
  return field.unit.empty() ? accepted(field) : fmt::format("{} ({})", accepted(field), field.unit);
}

std::string help_of(const Field& field, size_t indent, bool whole) {
  const std::string margin(indent, ' ');
  std::string text = fmt::format("{}{}  [{}]\n", margin, leaf(field.key), shown_default(field));
  text += wrapped(whole ? sentences(field.help, field.more) : field.help, margin + "    ");
  text += wrapped("Accepted: " + accepted_with_unit(field), margin + "    ");
  return text;
}

std::string help_of(const Section& section) {
  std::string text = wrapped(sentences(section.help, section.more), "") + "\n";
  for (const Field& field : fields()) {
    if (parent(field.key) == section.key) text += help_of(field, 2, false);
  }
  for (const Section& child : sections()) {
    if (child.key.empty() || parent(child.key) != section.key) continue;
    text += fmt::format("  {}\n", leaf(child.key)) + wrapped(child.help, "      ");
    text += wrapped("Keys: " + join(names_in(child.key)), "      ");
  }
  return text;
}

/// A line of `convoy config` with the comment above it.
std::string annotated(const Field& field, const std::string& margin) {
  std::string text = wrapped(sentences(field.help, field.more), margin + "# ");
  std::string note = "Accepted: " + accepted_with_unit(field) + ".";
  if (field.required) note += " Required.";
  if (!field.empty.empty()) note += fmt::format(" Empty: {}.", field.empty);
  text += wrapped(note, margin + "# ");
  const std::string value = field.example.empty() ? print_value(field, Job{}) : field.example;
  return text + fmt::format("{}{}: {}\n", margin, leaf(field.key), value);
}

std::string table_row(const Field& field) {
  const std::string note = sentences(field.help, field.more);
  return fmt::format("| `{}` | {} | {} | {} |\n", leaf(field.key), accepted_with_unit(field),
                     shown_default(field), note);
}

/// The anchor that renderers give a heading: without its dots.
std::string anchor(std::string heading) {
  std::erase(heading, '.');
  return heading;
}

constexpr std::string_view kTableHead =
    "\n| key | accepted | default | meaning |\n|---|---|---|---|\n";

}  // namespace

std::string help_text(const std::string& topic) {
  if (const Field* field = find_field(topic)) {
    const std::string_view section = parent(topic);
    return (section.empty() ? "" : fmt::format("{}:\n", section)) + help_of(*field, 2, true);
  }
  if (const Section* section = find_section(topic)) {
    return (topic.empty() ? "" : topic + ":\n") + help_of(*section);
  }
  const std::string meant = meant_by(topic);
  refuse("{}: there is no such key in a job{}", topic,
         meant.empty() ? "; see `convoy config`" : fmt::format("; did you mean {}?", meant));
}

std::string annotated_default() {
  std::string text =
      "# A complete job: every key with its default. Change what you need, delete the rest;\n"
      "# only model, data.kind and data.path have no default.\n\n";
  for (const Section& section : sections()) {
    const auto depth = static_cast<size_t>(std::ranges::count(section.key, '.'));
    std::string margin;
    if (!section.key.empty()) {
      const std::string outer(2 * depth, ' ');
      text += "\n" + wrapped(sentences(section.help, section.more), outer + "# ");
      text += fmt::format("{}{}:\n", outer, leaf(section.key));
      margin = outer + "  ";
    }
    for (const Field& field : fields()) {
      if (parent(field.key) == section.key) text += annotated(field, margin);
    }
  }
  return text;
}

std::string markdown() {
  std::string text(kPreface);
  for (const Section& section : sections()) {
    if (section.key.empty()) {
      text += fmt::format("\n{}\n", section.help);
    } else {
      text += fmt::format("\n### {}\n\n{}\n", section.key, sentences(section.help, section.more));
    }
    text += kTableHead;
    for (const Field& field : fields()) {
      if (parent(field.key) == section.key) text += table_row(field);
    }
    for (const Section& child : sections()) {
      if (child.key.empty() || parent(child.key) != section.key) continue;
      text += fmt::format("| `{}` | a map: see [{}](#{}) | | {} |\n", leaf(child.key), child.key,
                          anchor(child.key), child.help);
    }
  }
  return text.append(kExamples);
}

}  // namespace convoy::job
