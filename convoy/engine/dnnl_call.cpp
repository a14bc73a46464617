#include "convoy/engine/dnnl_call.hpp"

#include <memory>
#include <utility>

namespace convoy::engine {
namespace {

/// A primitive bound to one lane: memory objects are made once, pointers that change with the grain
/// are set before each execution.
class Call {
 public:
  Call(const dnnl::primitive& primitive, const dnnl::engine& engine)
      : primitive_(primitive), engine_(engine), stream_(engine) {}

  void add(int argument, const dnnl::memory::desc& desc, const Place& place,
           const LaneMemory& lane) {
    void* fixed = nullptr;
    if (place.kind == Place::buffer) fixed = lane.bytes(place.id);
    if (place.kind == Place::weights) fixed = lane.weights.arena + place.offset;
    if (place.kind == Place::prepared) fixed = lane.weights.prepared + place.offset;
    dnnl::memory memory(desc, engine_, fixed);
    if (fixed == nullptr) moving_.emplace_back(memory, place);
    arguments_.push_back({argument, memory.get()});
    memories_.push_back(std::move(memory));
  }

  void operator()(RunState& run) {
    for (auto& [memory, place] : moving_) {
      float* at = place.kind == Place::input
                      ? const_cast<float*>(run.grain->input)  // oneDNN has no const memory
                      : run.gradient(place.offset, place.layer_begin);
      dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(memory.get(), at), "data handle");
    }
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
                               arguments_.data()),
        "execute");
  }

 private:
  dnnl::primitive primitive_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<std::pair<dnnl::memory, Place>> moving_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

struct Argument {
  int number;
  dnnl::memory::desc desc;
  Place place;
};

void emit_call(Builder& b, model::LayerId layer, Phase phase, const std::string& name,
               const dnnl::primitive& primitive, const std::vector<Argument>& arguments) {
  std::vector<BufferId> buffers;
  buffers.reserve(arguments.size());
  for (const Argument& a : arguments) buffers.push_back(a.place.id);
  b.emit(layer, phase, name, buffers, [primitive, arguments](const LaneMemory& lane) -> Bound {
    auto call = std::make_shared<Call>(primitive, cpu_engine());
    for (const Argument& a : arguments) call->add(a.number, a.desc, a.place, lane);
    return [call](RunState& run) { (*call)(run); };
  });
}

void emit_reorder(Builder& b, model::LayerId layer, const dnnl::memory::desc& from_desc,
                  const Place& from, const dnnl::memory::desc& to_desc, const Place& to) {
  const dnnl::engine& engine = cpu_engine();
  const dnnl::reorder::primitive_desc pd(engine, from_desc, engine, to_desc, user_scratchpad());
  std::vector<Argument> arguments = {{DNNL_ARG_FROM, from_desc, from}, {DNNL_ARG_TO, to_desc, to}};
  if (pd.scratchpad_desc().get_size() > 0) {
    const BufferId id = b.new_bytes(static_cast<int64_t>(pd.scratchpad_desc().get_size()));
    arguments.push_back({DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc(), Place::at(id)});
  }
  emit_call(b, layer, Phase::reorder, std::string("oneDNN ") + pd.impl_info_str(),
            dnnl::reorder(pd), arguments);
}

}  // namespace

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::desc blocked_desc(const Blocked& s) {
  return {{s.n, s.channels, s.height, s.width},
          dnnl::memory::data_type::f32,
          dnnl::memory::format_tag::nChw8c};
}

void emit_primitive(Builder& b, model::LayerId layer, Phase phase, const dnnl::primitive& primitive,
                    const dnnl::memory::desc& scratchpad, const std::string& implementation,
                    const std::vector<Operand>& operands) {
  std::vector<Argument> arguments;
  std::vector<std::pair<Operand, Place>> converted_outputs;
  for (const Operand& o : operands) {
    if (o.ours == o.theirs) {
      arguments.push_back({o.argument, o.ours, o.place});
      continue;
    }
    const Place temporary = Place::at(b.new_bytes(static_cast<int64_t>(o.theirs.get_size())));
    if (o.output) {
      converted_outputs.emplace_back(o, temporary);
    } else {
      emit_reorder(b, layer, o.ours, o.place, o.theirs, temporary);
    }
    arguments.push_back({o.argument, o.theirs, temporary});
  }
  if (scratchpad.get_size() > 0) {
    const BufferId id = b.new_bytes(static_cast<int64_t>(scratchpad.get_size()));
    arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, Place::at(id)});
  }
  emit_call(b, layer, phase, "oneDNN " + implementation, primitive, arguments);
  for (const auto& [o, temporary] : converted_outputs) {
    emit_reorder(b, layer, o.theirs, temporary, o.ours, o.place);
  }
}

}  // namespace convoy::engine
