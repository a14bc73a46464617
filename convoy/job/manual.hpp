#pragma once
// The field table (convoy/job/fields.hpp) in words: for the terminal, as a job to start from, and
// as docs/job.md.

#include <string>

namespace convoy::job {

/// What `--help` says about the whole job (""), a section ("train.lr") or a field ("train.batch").
/// Throws InputError with the nearest topic if there is none of that name.
std::string help_text(const std::string& topic = "");

/// What `convoy config` prints: a complete job with every key, its default and a comment.
/// read_job accepts it as it is.
std::string annotated_default();

/// docs/job.md. Every block marked yaml in it is a complete job.
std::string markdown();

}  // namespace convoy::job
