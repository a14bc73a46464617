#pragma once
// The field table: one entry for each key of a job, and the only place that knows it. Reading,
// checking, writing (convoy/job/read.hpp), help, `convoy config` and docs/job.md
// (convoy/job/manual.hpp) all walk this table. A new key is a member in convoy/job/job.hpp and an
// entry in fields.cpp; run `convoy config --markdown > docs/job.md` afterwards.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "convoy/job/job.hpp"

namespace convoy::job {

/// Where a field's value lives in a job. Its type T decides how the value is written in YAML.
template <typename T>
using Access = T& (*)(Job&);

/// The smallest and the largest accepted value; of lists, of each element.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  ///< min itself is not accepted
  bool below_max = false;  ///< max itself is not accepted
};

/// How the value of a real field is spelled.
enum class Spelling {
  number,    ///< 0.1, 5e-4
  duration,  ///< 90s, 10min, 1h 30min; a bare number is seconds
};

struct Field {
  using Place = std::variant<Access<bool>, Access<int64_t>, Access<uint64_t>, Access<double>,
                             Access<std::string>, Access<Bytes>, Access<std::vector<int64_t>>,
                             Access<std::vector<double>>, Access<YAML::Node>>;

  std::string key;  ///< the whole path: "train.lr.peak"
  Place place;
  std::string help;                       ///< one line
  std::string more = {};                  ///< further sentences, for the manual
  std::string unit = {};                  ///< "samples", "epochs"
  Range range = {};                       ///< numbers and lists of numbers
  size_t count = 0;                       ///< lists: how many elements if not empty; 0: any number
  std::vector<std::string> choices = {};  ///< text: the accepted words; empty: any text
  std::string zero = {};                  ///< the word that spells 0: "auto", "off", "all"
  Spelling spelling = Spelling::number;
  std::string empty = {};    ///< what an empty list or text means, for the manual
  std::string example = {};  ///< shown where there is no default
  bool required = false;
  std::vector<std::string> also = {};  ///< what people write by mistake, to point them here
};

/// A map of fields. The whole job is the section "".
struct Section {
  std::string key;
  std::string help;
  std::string more = {};
  std::string shorthand = {};  ///< the field a scalar in place of the map stands for
  std::vector<std::string> also = {};
};

/// All fields, in the order they are printed; fields of a section stand together.
const std::vector<Field>& fields();

/// All sections, parents before children, in the order they are printed.
const std::vector<Section>& sections();

/// Null if there is none of that key.
const Field* find_field(std::string_view key);
const Section* find_section(std::string_view key);

/// "train.lr" of "train.lr.peak", "" of "model".
std::string_view parent(std::string_view key);
/// "peak" of "train.lr.peak".
std::string_view leaf(std::string_view key);
/// "train" + "lr" = "train.lr"; "" + "model" = "model".
std::string path_of(std::string_view section, std::string_view name);

/// The names accepted inside a section, fields and sections in the order of the table.
std::vector<std::string> names_in(std::string_view section);

/// The keys of all fields, for shells' completion.
std::vector<std::string> keys();

/// The key that `path`, which is none, was probably meant to be; "" if there is no telling.
std::string meant_by(std::string_view path);

}  // namespace convoy::job
