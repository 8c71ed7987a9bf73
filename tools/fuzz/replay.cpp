// A main program for a fuzz target where there is no libFuzzer: runs the files of a folder, then
// random inputs and altered files.
//
//   TARGET FOLDER RANDOM_INPUTS
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

void run(const Bytes& bytes) {
  // On the heap, and exactly as long as it is.
  const std::unique_ptr<uint8_t[]> data(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), data.get());
  LLVMFuzzerTestOneInput(data.get(), bytes.size());
}

Bytes random_bytes(fuzz::Random* random) {
  Bytes bytes(size_t{32} << random->below(6));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random->next());
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER RANDOM_INPUTS\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> files;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  for (const Bytes& bytes : files) run(bytes);
  const unsigned count = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
  fuzz::Random random(1);
  for (unsigned i = 0; i < count; ++i) {
    Bytes bytes = files.empty() || i % 2 ? random_bytes(&random)
                                         : files[random.below(static_cast<unsigned>(files.size()))];
    for (unsigned n = i % 2 || bytes.empty() ? 0 : 1 + random.below(8); n; --n)
      bytes[random.below(static_cast<unsigned>(bytes.size()))] =
          static_cast<uint8_t>(random.next());
    run(bytes);
  }
  std::printf("%zu files and %u random inputs\n", files.size(), count);
}
