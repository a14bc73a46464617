#pragma once
// One value of a job: from YAML, to YAML, and in words. Everything follows from the field's entry
// in the table (convoy/job/fields.hpp).

#include <string>

#include <yaml-cpp/yaml.h>

#include "convoy/job/fields.hpp"

namespace convoy::job {

/// Sets the field in `job`, or leaves it and returns what is wrong with the value:
/// "'many' is not a whole number", "0 is too small". Empty if all is well.
std::string read_value(const Field& field, const YAML::Node& node, Job& job);

/// The value as YAML on one line, of which read_value makes the same bits again. Not for `model`.
std::string print_value(const Field& field, const Job& job);

/// "whole numbers from 1", "off, or numbers above 0", "idx, cifar10, cifar100, synthetic".
std::string accepted(const Field& field);

/// What a node is, for a message: "'many'", "a list", "a map", "nothing".
std::string describe(const YAML::Node& node);

}  // namespace convoy::job
