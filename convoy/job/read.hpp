#pragma once
// Jobs from YAML and back. A value comes from the last of: the default, the file, --set.
//
//   job.yaml:7: train.bacth: unknown key; did you mean train.batch? accepted in train: batch, …
//   --set train.batch=many: train.batch: 'many' is not a whole number; accepted: whole numbers from
//   1
//
// Everything that is wrong is reported at once, one line each, in one InputError.

#include <filesystem>
#include <string>
#include <vector>

#include "convoy/job/job.hpp"

namespace convoy::job {

/// Reads and checks a job file of at most 1 MiB. Each override is what follows --set: "KEY=VALUE",
/// with the key's whole path and a value in YAML ("train.batch=512", "data.shape=[3, 32, 32]",
/// "train.lr=0.1", "model=vgg-a", "model.classes=100", "model.layers.0.conv.out=64").
///
/// `model` keeps the lines of the file in its marks; what an override put there has no mark
/// (Mark().is_null()).
Job read_job(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

/// The same for text at hand; `name` stands for the file in messages.
Job parse_job(const std::string& text, const std::string& name,
              const std::vector<std::string>& overrides = {});

/// The resolved job: every field with its value. Reading it gives an equal job, to the last bit.
/// Relative paths stay as they were given.
std::string to_yaml(const Job& job);

}  // namespace convoy::job
