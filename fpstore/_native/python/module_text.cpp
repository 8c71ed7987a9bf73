// Fingerprints of texts.
#include <limits>
#include <mutex>

#include "pairs/request.hpp"
#include "python/module.hpp"
#include "text/containment.hpp"
#include "text/feature_sets.hpp"
#include "text/minhash.hpp"
#include "text/overlaps.hpp"
#include "text/page.hpp"
#include "text/simhash.hpp"

namespace fpstore {

namespace {

using Places = Array<const int32_t>;

void check_ascending(const Words& hashes, const char* what) {
  for (size_t i = 1; i < hashes.size(); ++i) need(hashes.data()[i - 1] < hashes.data()[i], what);
}

CharMap char_map(const nb::bytes& ascii, const Places& pages, const Counts& entries,
                 const nb::bytes& pool) {
  need(ascii.size() == 128, "a byte for each ASCII character");
  need(pages.size() == kCodePoints / kPagePoints, "a page for each 256 code points");
  for (size_t i = 0; i < pages.size(); ++i)
    need(pages.data()[i] < 0 ||
             (static_cast<size_t>(pages.data()[i]) + 1) * kPagePoints <= entries.size(),
         "entries are missing");
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint32_t entry = entries.data()[i];
    need(entry >> kKindShift != static_cast<uint32_t>(CharKind::replaced) ||
             (entry & kPlaceMask) + (entry >> kFormShift & kFormMask) <= pool.size(),
         "the pool is too short");
  }
  return {data_of(ascii), pages.data(), entries.data(), data_of(pool)};
}

unsigned checked_row_words(unsigned words) {
  need(words == 1 || words == 2 || words == 4, "a fingerprint has 1, 2 or 4 words");
  return words;
}

FeatureHash hash_named(const std::string& name) {
  if (name == "xxh64") return FeatureHash::xxh64;
  if (name == "fnv1a") return FeatureHash::fnv1a;
  throw nb::value_error("the kernel has xxh64 and fnv1a");
}

Counting counting_named(const std::string& name) {
  if (name == "count") return Counting::each;
  if (name == "set") return Counting::distinct;
  if (name == "log") return Counting::log;
  throw nb::value_error("features are counted by count, set or log");
}

void check_weights(const Counts& weights, const char* rule) {
  for (size_t i = 0; i < weights.size(); ++i)
    need(weights.data()[i] >= 1 && weights.data()[i] <= kMaxWeight, rule);
}

void set_bands(TextOptions* options, unsigned bands, unsigned band_size, unsigned band_first) {
  need(bands <= kMaxFunctions && band_size <= kMaxFunctions && band_first <= kMaxFunctions &&
           bands * band_size + band_first <= kMaxFunctions,
       "bands of too many functions");
  options->bands = bands;
  options->band_size = band_size;
  options->band_first = band_first;
}

// A map of characters, which is checked once.
class CharTables {
 public:
  CharTables(nb::bytes ascii, Places pages, Counts entries, nb::bytes pool)
      : ascii_(ascii),
        pages_(pages),
        entries_(entries),
        pool_(pool),
        map_(char_map(ascii, pages, entries, pool)) {}
  const CharMap& map() const { return map_; }

 private:
  nb::bytes ascii_;
  Places pages_;
  Counts entries_;
  nb::bytes pool_;
  CharMap map_;
};

// Hashes, each once and ascending, whose ranks are looked up.
class KnownHashes {
 public:
  explicit KnownHashes(Words hashes)
      : hashes_(checked(hashes)), ranks_(hashes_.data(), hashes_.size()) {}
  const HashRanks& ranks() const { return ranks_; }

 private:
  static const Words& checked(const Words& hashes) {
    need(hashes.size() <= HashRanks::kMost, "too many hashes");
    check_ascending(hashes, "hashes ascend");
    return hashes;
  }
  Words hashes_;
  HashRanks ranks_;
};

// How rows of texts become features with weights, and what is made of these. A method takes texts
// with the map of their characters, and returns (words of each row, what became of each row,
// missing pages of the map, bounds of lines of unknown form); see text/rows.hpp.
class TextFeatures {
 public:
  TextFeatures(bool words, unsigned length, const std::string& counting, const std::string& hash,
               uint64_t seed, unsigned row_words, Words weighted, Counts weights,
               uint32_t other_weight, Words stops, Counts fields)
      : weighted_(weighted), stops_(stops), weights_(weights), fields_(fields) {
    need(length >= 1 && length <= kMaxLength, "shingle length is at least 1, and not above 65535");
    need(fields.size(), "a row has a text for each field");
    need(weighted.size() == weights.size(), "a weight for each feature");
    check_weights(fields, "the weight of a field is 1 to 65535");
    check_weights(weights, "the weight of a feature is 1 to 65535");
    need(other_weight >= 1 && other_weight <= kMaxWeight,
         "the weight of other features is 1 to 65535");
    check_ascending(weighted, "hashes of weighted features ascend");
    check_ascending(stops, "hashes of stop words ascend");
    options_ = {words,
                length,
                counting_named(counting),
                hash_named(hash),
                seed,
                checked_row_words(row_words),
                {weighted_.data(), weights_.data(), weighted_.size(), other_weight},
                stops_.data(),
                stops_.size(),
                static_cast<unsigned>(fields_.size()),
                fields_.data()};
  }

  nb::tuple simhash(nb::bytes text, Words offsets, const CharTables& tables) const {
    return made(simhash_texts, options_, text, offsets, tables.map());
  }
  nb::tuple minhash(nb::bytes text, Words offsets, const CharTables& tables, unsigned bands,
                    unsigned band_size, unsigned band_first) const {
    TextOptions options = options_;
    set_bands(&options, bands, band_size, band_first);
    return made(minhash_texts, options, text, offsets, tables.map());
  }
  // Before the tuple, the features of all rows; see text/feature_sets.hpp.
  nb::tuple sets(nb::bytes text, Words offsets, const CharTables& tables, uint32_t samples) const {
    const auto make = [&](const Texts& texts, TextOptions options, const TextResults& results,
                          std::vector<uint32_t>* out) {
      options.samples = samples;
      return feature_sets(texts, options, results, out);
    };
    return with_sets<uint32_t>(make, 3, text, offsets, tables.map());
  }
  nb::tuple hashes(nb::bytes text, Words offsets, const CharTables& tables) const {
    return with_sets<uint64_t>(feature_hashes, 2, text, offsets, tables.map());
  }
  nb::tuple ranks(nb::bytes text, Words offsets, const CharTables& tables,
                  const KnownHashes& known) const {
    const auto make = [&](const Texts& texts, const TextOptions& options,
                          const TextResults& results, std::vector<uint32_t>* out) {
      return feature_ranks(texts, options, results, known.ranks(), out);
    };
    return with_sets<uint32_t>(make, 2, text, offsets, tables.map());
  }

 private:
  template <class T, class Make>
  nb::tuple with_sets(Make make, unsigned row_words, const nb::bytes& text, const Words& offsets,
                      const CharMap& map) const {
    std::vector<T> values;
    TextOptions options = options_;
    options.row_words = row_words;
    const auto made_with = [&](const Texts& texts, const TextOptions& of_rows,
                               const TextResults& results) {
      const bool fits = make(texts, of_rows, results, &values);
      values.shrink_to_fit();  // here, where other threads go on
      return fits;
    };
    const nb::tuple results = made(made_with, options, text, offsets, map);
    return nb::make_tuple(array_of(std::move(values)), results);
  }
  template <class Make>
  static nb::tuple made(Make make, const TextOptions& options, const nb::bytes& text,
                        const Words& offsets, const CharMap& map) {
    const size_t count = count_of_spans(text.size(), offsets), n = count / options.field_count;
    need(count % options.field_count == 0, "a row has a text for each field");
    Buffer<uint64_t> rows(n * options.words_in_all());
    Buffer<uint8_t> states(n);
    UnknownForms unknown;
    const TextResults results{rows.get(), reinterpret_cast<TextState*>(states.get()), &unknown};
    if (!call([&] { return make(Texts{map, data_of(text), offsets.data(), n}, options, results); }))
      raise("MemoryLimitError", "out of memory while hashing texts: hash shorter ones");
    std::vector<uint32_t> missing;
    for (uint32_t page = 0; page < unknown.pages.size(); ++page)
      if (unknown.pages[page]) missing.push_back(page);
    return nb::make_tuple(rows.array(n, options.words_in_all()), states.array(n), array_of(missing),
                          array_of(unknown.lines, 2));
  }

  Words weighted_, stops_;
  Counts weights_, fields_;
  TextOptions options_{};
};

// The row of a set of features by their hashes, or of a weighted one.
nb::object minhash_row(Words hashes, Array<const double> weights, uint64_t seed, unsigned row_words,
                       unsigned bands, unsigned band_size, unsigned band_first) {
  need(hashes.size() && (!weights.size() || weights.size() == hashes.size()),
       "a weight for each feature, or none");
  for (size_t i = 0; i < weights.size(); ++i)
    need(weights.data()[i] > 0 && weights.data()[i] <= std::numeric_limits<double>::max(),
         "a weight is above 0");
  TextOptions options{};
  options.seed = seed;
  options.row_words = checked_row_words(row_words);
  set_bands(&options, bands, band_size, band_first);
  Buffer<uint64_t> row(options.words_in_all());
  minhash_features(hashes.data(), weights.size() ? weights.data() : nullptr, hashes.size(), options,
                   row.get());
  return row.array(1, options.words_in_all());
}

// Sets of features, checked once.
class FeatureSets {
 public:
  FeatureSets(Counts features, Words lims)
      : features_(features),
        lims_(lims),
        count_(count_of_spans(features.size(), lims)),
        sets_{features_.data(), lims_.data()} {}

  // How many features pairs of sets share.
  nb::object shared(Words a, Words b) const {
    need(a.size() == b.size(), kUnequal);
    check_numbers(a);
    check_numbers(b);
    Buffer<uint64_t> out(a.size());
    call(nullptr, [&](Stopper* stopping) {
      for (size_t i = 0; i < a.size(); ++i) {
        const uint64_t left = a.data()[i], right = b.data()[i];
        out.get()[i] = count_shared(sets_, left, right);
        if (should_stop(stopping, sets_.size(left) + sets_.size(right))) return;
      }
    });
    return out.array(a.size());
  }

  // Whether the second set of each pair has a share of the features of the first.
  nb::object contain(Words a, Words b, double share) const {
    need(a.size() == b.size(), kUnequal);
    check_numbers(a);
    check_numbers(b);
    Buffer<uint8_t> out(a.size());
    call(nullptr, [&](Stopper* stopping) {
      for (size_t i = 0; i < a.size(); ++i) {
        const uint64_t left = a.data()[i], right = b.data()[i];
        out.get()[i] = contains_share(sets_, left, right, share);
        if (should_stop(stopping, sets_.size(left) + sets_.size(right))) return;
      }
    });
    return out.array(a.size());
  }

  // Keys and numbers to sort: the first features of sets, changed by a salt of the set if there are
  // salts, and the rank of the set.
  nb::tuple samples(Words numbers, Counts counts, Counts ranks, Counts salts) const {
    const size_t n = numbers.size();
    need(counts.size() == n && ranks.size() == n && (!salts.size() || salts.size() == n), kUnequal);
    need(n <= UINT32_MAX, "too many");
    check_numbers(numbers);
    size_t total = 0;
    for (size_t i = 0; i < n; ++i) {
      need(counts.data()[i] <= sets_.size(numbers.data()[i]), "a sample has more than its set");
      total += counts.data()[i];
    }
    Buffer<uint64_t> keys(total);
    Buffer<uint32_t> text_ranks(total);
    call(nullptr, [&](Stopper* stopping) {
      uint64_t* key = keys.get();
      uint32_t* rank = text_ranks.get();
      for (size_t i = 0; i < n; ++i) {
        const uint32_t* const features = sets_.features + sets_.lims[numbers.data()[i]];
        const uint32_t salt = salts.size() ? salts.data()[i] : 0;
        for (uint32_t k = 0; k < counts.data()[i]; ++k) {
          *key++ = features[k] ^ salt;
          *rank++ = ranks.data()[i];
        }
        if (should_stop(stopping, counts.data()[i])) return;
      }
    });
    return nb::make_tuple(keys.array(total), text_ranks.array(total));
  }

  // The row that stays for each row of some groups; see decide_groups. Row i has the set
  // numbers[i].
  nb::object decide(Words numbers, Words lims, Words digests, Bytes stays, double contained,
                    double similar, const Stop* stop) const {
    const size_t n = numbers.size(), groups = count_of_spans(n, lims);
    need(!lims.data()[0] && lims.data()[groups] == n, "the groups are those of the rows");
    need(digests.size() == n && (!stays.size() || stays.size() == n),
         "a digest and a flag for each row");
    need(n <= UINT32_MAX, "too many");
    check_numbers(numbers);
    Buffer<uint64_t> out(n);
    const ContainmentGroups of{sets_,          numbers.data(),
                               digests.data(), stays.size() ? stays.data() : nullptr,
                               lims.data(),    groups};
    const ContainmentRule rule{contained, similar};
    if (!call(stop,
              [&](Stopper* stopping) { return decide_groups(of, rule, out.get(), stopping); }))
      raise("MemoryLimitError", "out of memory while texts were compared: use fewer threads");
    return out.array(n);
  }

 private:
  void check_numbers(const Words& sets) const {
    for (size_t i = 0; i < sets.size(); ++i) need(sets.data()[i] < count_, "no such set");
  }

  Counts features_;
  Words lims_;
  size_t count_;
  SetsOfFeatures sets_;
};

// (heads of lists, each text that is paired, its spans of heads); see TextLists.
nb::tuple lists_of_texts(Words sizes, Counts ranks, Counts order, unsigned most,
                         unsigned most_crowded, uint64_t first_place) {
  need(most_crowded >= 1 && most_crowded <= most && most <= kMaxPaired,
       "a text is paired with 1 to 127 others of a list");
  need(first_place < (uint64_t{1} << 56) - ranks.size(), "too many");
  TextLists lists;
  call(nullptr, [&](Stopper* stopping) {
    size_t left = ranks.size();
    for (const uint64_t size : span_of(sizes)) {
      need(size <= left, "the lists have more texts than there are ranks");
      left -= size;
    }
    need(!left, "the lists have fewer texts than there are ranks");
    for (const uint32_t rank : span_of(ranks)) need(rank < order.size(), "no such rank");
    list_texts(span_of(sizes), ranks.data(), order.data(), {most, most_crowded}, first_place,
               &lists, stopping);
  });
  return nb::make_tuple(array_of(std::move(lists.heads)), array_of(std::move(lists.texts)),
                        array_of(std::move(lists.head_spans)));
}

// What texts share with those that they are paired with.
class PairCounter {
 public:
  PairCounter(Counts heads, uint64_t text_count)
      : heads_(heads), counter_(span_of(heads_), checked(text_count)) {}

  // Pairs of texts that share enough: (texts, others, rare features, all features, crowded features
  // of the text). Text i has counts[i] of the spans of heads. Calls follow each other.
  nb::tuple count(Words texts, Words counts, Words head_spans, Counts least) {
    need(counts.size() == texts.size() && least.size() == texts.size(), kUnequal);
    SharedPairs out;
    call(nullptr, [&](Stopper* stopping) {
      const std::lock_guard<std::mutex> alone(mutex_);
      counter_.count({span_of(texts), counts.data(), span_of(head_spans), least.data()}, &out,
                     stopping);
    });
    return nb::make_tuple(array_of(std::move(out.texts)), array_of(std::move(out.others)),
                          array_of(std::move(out.rare)), array_of(std::move(out.total)),
                          array_of(std::move(out.crowded)));
  }

 private:
  static uint64_t checked(uint64_t text_count) {
    need(text_count <= UINT32_MAX, "too many");
    return text_count;
  }
  Counts heads_;
  std::mutex mutex_;
  SharedCounter counter_;
};

// The rows of the hashes of features.
nb::object feature_rows(nb::bytes features, Words offsets, const std::string& hash, uint64_t seed,
                        unsigned row_words) {
  const size_t n = count_of_spans(features.size(), offsets);
  const FeatureHash kind = hash_named(hash);
  Buffer<uint64_t> rows(n * checked_row_words(row_words));
  for (size_t i = 0; i < n; ++i) {
    const uint64_t start = offsets.data()[i];
    feature_row(feature_hash(kind, data_of(features) + start, offsets.data()[i + 1] - start, seed),
                row_words, rows.get() + i * row_words);
  }
  return rows.array(n, row_words);
}

nb::object weighted_signs(Rows rows, Array<const double> weights, Bytes batched,
                          unsigned row_words) {
  need(rows.size() == weights.size() * checked_row_words(row_words) &&
           batched.size() == weights.size(),
       "a weight and a flag for each row");
  Buffer<uint64_t> row(row_words);
  simhash_weighted(rows.data(), weights.data(), batched.data(), weights.size(), row_words,
                   row.get());
  return row.array(1, row_words);
}

// The texts of which one of the first `most` bytes may begin a page of HTML.
nb::object page_candidates(nb::bytes text, Words offsets, uint64_t most) {
  const size_t n = count_of_spans(text.size(), offsets);
  std::vector<uint64_t> places;
  call([&] {
    for (size_t i = 0; i < n; ++i) {
      const uint64_t start = offsets.data()[i], size = offsets.data()[i + 1] - start;
      if (may_be_page({data_of(text) + start, std::min(size, most)})) places.push_back(i);
    }
  });
  return array_of(std::move(places));
}

// Makes pages of HTML plain, by the names of entities and what they stand for.
class PageTexts {
 public:
  PageTexts(const std::vector<nb::bytes>& names, const std::vector<nb::bytes>& texts) {
    need(names.size() == texts.size(), kUnequal);
    const auto string = [](const nb::bytes& b) { return std::string(b.c_str(), b.size()); };
    for (size_t i = 0; i < names.size(); ++i) entities_[string(names[i])] = string(texts[i]);
  }

  // (text, its visible characters) of a part of a text; None for a page that is not regular.
  nb::object plain(nb::bytes data, uint64_t start, uint64_t end) const {
    need(start <= end && end <= data.size(), "a page runs past the data");
    std::vector<uint8_t> text;
    uint64_t characters = 0;
    const Span<const uint8_t> page{data_of(data) + start, end - start};
    const bool done = call([&] {
      if (!plain_page(page, entities_, &text)) return false;
      characters = visible_characters({text.data(), text.size()});
      return true;
    });
    if (!done) return nb::none();
    return nb::make_tuple(bytes_of(text.data(), text.size()), characters);
  }

 private:
  Entities entities_;
};

}  // namespace

void bind_text(nb::module_& m) {
  nb::class_<CharTables>(m, "CharTables")
      .def(nb::init<nb::bytes, Places, Counts, nb::bytes>(), "ascii"_a, "pages"_array,
           "entries"_array, "pool"_a);
  nb::class_<TextFeatures> features(m, "TextFeatures");
  features.def(nb::init<bool, unsigned, const std::string&, const std::string&, uint64_t, unsigned,
                        Words, Counts, uint32_t, Words, Counts>(),
               "words"_a, "length"_a, "counting"_a, "hashing"_a, "seed"_a, "row_words"_a,
               "weighted"_array, "weights"_array, "other_weight"_a, "stops"_array, "fields"_array);
  const auto of_texts = [&](const char* name, auto method) {
    features.def(name, method, "text"_a, "offsets"_array, "tables"_a);
  };
  of_texts("simhash", &TextFeatures::simhash);
  features.def("minhash", &TextFeatures::minhash, "text"_a, "offsets"_array, "tables"_a,
               "bands"_a = 0, "band_size"_a = 0, "band_first"_a = 0);
  features.def("sets", &TextFeatures::sets, "text"_a, "offsets"_array, "tables"_a, "samples"_a);
  of_texts("hashes", &TextFeatures::hashes);
  nb::class_<KnownHashes>(m, "KnownHashes").def(nb::init<Words>(), "hashes"_array);
  features.def("ranks", &TextFeatures::ranks, "text"_a, "offsets"_array, "tables"_a, "known"_a);
  m.def("minhash_features", &minhash_row, "hashes"_array, "weights"_array, "seed"_a, "row_words"_a,
        "bands"_a = 0, "band_size"_a = 0, "band_first"_a = 0);
  nb::class_<FeatureSets>(m, "FeatureSets")
      .def(nb::init<Counts, Words>(), "features"_array, "lims"_array)
      .def("shared", &FeatureSets::shared, "a"_array, "b"_array)
      .def("contain", &FeatureSets::contain, "a"_array, "b"_array, "share"_a)
      .def("samples", &FeatureSets::samples, "numbers"_array, "counts"_array, "ranks"_array,
           "salts"_array)
      .def("decide", &FeatureSets::decide, "numbers"_array, "lims"_array, "digests"_array,
           "stays"_array, "contained"_a, "similar"_a, optional_stop());
  m.def("page_candidates", &page_candidates, "text"_a, "offsets"_array, "most"_a);
  nb::class_<PageTexts>(m, "PageTexts")
      .def(nb::init<const std::vector<nb::bytes>&, const std::vector<nb::bytes>&>(), "names"_a,
           "texts"_a)
      .def("plain", &PageTexts::plain, "data"_a, "start"_a, "end"_a);
  m.def("list_texts", &lists_of_texts, "sizes"_array, "ranks"_array, "order"_array, "most"_a,
        "most_crowded"_a, "first_place"_a);
  nb::class_<PairCounter>(m, "SharedCounter")
      .def(nb::init<Counts, uint64_t>(), "heads"_array, "text_count"_a)
      .def("count", &PairCounter::count, "texts"_array, "counts"_array, "head_spans"_array,
           "least"_array);
  m.def("feature_rows", &feature_rows, "features"_a, "offsets"_array, "hashing"_a, "seed"_a,
        "row_words"_a);
  m.def("simhash_weighted", &weighted_signs, "rows"_array, "weights"_array, "batched"_array,
        "row_words"_a);
}

}  // namespace fpstore
