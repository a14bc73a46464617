#pragma once
// Finds the images of a data set that is a folder with a sub-folder for each class.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace convoy::data {

/// An image found: its path below the root, with '/', and the number of its class.
struct FoundImage {
  std::string path;
  int32_t label = 0;
  bool operator==(const FoundImage&) const = default;
};

struct FolderImages {
  std::vector<std::string> classes;  ///< names of the sub-folders, sorted
  std::vector<FoundImage> train;     ///< by class, then by path: the same order everywhere
  std::vector<FoundImage> test;
  std::vector<std::string> others;  ///< files that are not named like images
};

/// Looks for files named *.jpg, *.jpeg and *.png (in any case) at any depth below
///
///     ROOT/train/CLASS and ROOT/val/CLASS (or valid, validation, test: the first that there is),
///     or ROOT/CLASS, or ROOT/train/CLASS alone.
///
/// In the last two cases `test_part` of each class becomes the test set, rounded, but never a whole
/// class: the images whose path from CLASS/ on has the lowest hash (XXH3, 64 bits; equal ones by
/// path). Hidden files and folders (.name) are passed over, links to folders are not followed.
/// Throws InputError that says what was looked for if there is nothing, if a class has no training
/// images, or one is only in the test set.
FolderImages find_images(const std::filesystem::path& root, double test_part = 0.1);

}  // namespace convoy::data
