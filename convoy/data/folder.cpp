#include "convoy/data/folder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/text.hpp"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImages = "*.jpg, *.jpeg or *.png";
constexpr std::array<const char*, 4> kTestFolders{"val", "valid", "validation", "test"};

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

bool is_named_like_an_image(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

std::vector<std::string> subfolders(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && !is_hidden(entry.path())) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The images below folder/NAME for each class of a split; paths are relative to `root`.
using Classes = std::map<std::string, std::vector<std::string>>;

std::vector<std::string> images_below(const fs::path& root, const fs::path& folder,
                                      std::vector<std::string>& others) {
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator i(folder), end; i != end; ++i) {
    if (is_hidden(i->path())) {
      i.disable_recursion_pending();
    } else if (!i->is_directory()) {
      const bool image = is_named_like_an_image(i->path());
      (image ? found : others).push_back(i->path().lexically_relative(root).generic_string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Classes classes_below(const fs::path& root, const fs::path& folder,
                      std::vector<std::string>& others) {
  Classes classes;
  for (const std::string& name : subfolders(folder)) {
    classes[name] = images_below(root, folder / name, others);
  }
  return classes;
}

/// Takes the part with the lowest hashes out of `images`, whose paths all begin with `above`.
std::vector<std::string> take_part(const std::string& above, std::vector<std::string>& images,
                                   double part) {
  std::vector<std::tuple<uint64_t, std::string>> order;
  for (const std::string& image : images) {
    const auto* const key = reinterpret_cast<const uint8_t*>(image.data()) + above.size();
    order.emplace_back(checksum({key, image.size() - above.size()}), image);
  }
  std::sort(order.begin(), order.end());
  const auto wanted = static_cast<size_t>(std::llround(part * static_cast<double>(images.size())));
  order.resize(std::min(wanted, images.size() - 1));
  std::vector<std::string> taken;
  taken.reserve(order.size());
  for (auto& [hash, image] : order) taken.push_back(std::move(image));
  std::sort(taken.begin(), taken.end());
  std::vector<std::string> rest;
  std::set_difference(images.begin(), images.end(), taken.begin(), taken.end(),
                      std::back_inserter(rest));
  images = std::move(rest);
  return taken;
}

void check_classes(const fs::path& root, const fs::path& train_folder, const Classes& train,
                   const Classes& test, const std::string& test_folder) {
  std::vector<std::string> empty;
  for (const auto& [name, images] : train) {
    if (images.empty()) empty.push_back(name);
  }
  if (!empty.empty()) {
    refuse("{}: {} without training images ({}): {}", train_folder.string(),
           plural(static_cast<int64_t>(empty.size()), "class folder"), kImages, join(empty));
  }
  std::vector<std::string> unknown;
  for (const auto& [name, images] : test) {
    if (!images.empty() && !train.contains(name)) unknown.push_back(name);
  }
  if (!unknown.empty()) {
    refuse("{}: classes that {} does not have: {}", (root / test_folder).string(),
           train_folder.string(), join(unknown));
  }
}

void append(const Classes& classes, const std::vector<std::string>& names,
            std::vector<FoundImage>& to) {
  for (size_t label = 0; label < names.size(); ++label) {
    const auto found = classes.find(names[label]);
    if (found == classes.end()) continue;
    for (const std::string& path : found->second) {
      to.push_back({.path = path, .label = static_cast<int32_t>(label)});
    }
  }
}

FolderImages find(const fs::path& root, double test_part) {
  FolderImages found;
  const bool has_train = fs::is_directory(root / "train");
  const fs::path train_folder = has_train ? root / "train" : root;
  std::string test_folder;
  for (const char* name : kTestFolders) {
    if (has_train && test_folder.empty() && fs::is_directory(root / name)) test_folder = name;
  }
  Classes train = classes_below(root, train_folder, found.others);
  Classes test;
  if (!test_folder.empty()) test = classes_below(root, root / test_folder, found.others);
  const bool any = std::any_of(train.begin(), train.end(),
                               [](const auto& entry) { return !entry.second.empty(); });
  if (!any) {
    refuse(
        "{}: no images were found; looked for {} in {}/CLASS{}. A data set is a folder ROOT with "
        "ROOT/train/CLASS and ROOT/val/CLASS, or with ROOT/CLASS",
        root.string(), kImages, train_folder.string(),
        found.others.empty() ? ""
                             : ", where there are other files, such as " + found.others.front());
  }
  check_classes(root, train_folder, train, test, test_folder);
  if (test_folder.empty()) {
    for (auto& [name, images] : train) {
      test[name] = take_part(has_train ? "train/" : "", images, test_part);
    }
  }
  for (const auto& [name, images] : train) found.classes.push_back(name);
  append(train, found.classes, found.train);
  append(test, found.classes, found.test);
  if (found.test.empty()) {
    refuse("{}: no test images were found; looked for {} in {}", root.string(), kImages,
           test_folder.empty()
               ? fmt::format("{} of each class, which is less than one image", test_part)
               : (root / test_folder).string() + "/CLASS");
  }
  std::sort(found.others.begin(), found.others.end());
  return found;
}

}  // namespace

FolderImages find_images(const fs::path& root, double test_part) {
  if (!(test_part > 0 && test_part < 1)) {
    refuse("the part for testing must lie between 0 and 1, found {}", test_part);
  }
  if (!fs::is_directory(root)) refuse("{}: is not a folder", root.string());
  try {
    return find(root, test_part);
  } catch (const fs::filesystem_error& error) {
    refuse("cannot look through {}: {}", root.string(), error.what());
  }
}

}  // namespace convoy::data
