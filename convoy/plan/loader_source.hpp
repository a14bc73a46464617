#pragma once
// Lanes read straight from the loader's ring.

#include "convoy/data/loader.hpp"
#include "convoy/sync/stepper.hpp"

namespace convoy::plan {

class LoaderSource final : public sync::GrainSource {
 public:
  /// Null for a worker without grains.
  explicit LoaderSource(data::TrainLoader* loader) : loader_(loader) {}
  Samples get(int64_t step, int64_t grain) override {
    const data::Grain g = loader_->get(step, grain);
    return {g.inputs.data(), g.labels.data()};
  }
  void release(int64_t step, int64_t grain) override { loader_->release(step, grain); }

 private:
  data::TrainLoader* loader_;
};

}  // namespace convoy::plan
