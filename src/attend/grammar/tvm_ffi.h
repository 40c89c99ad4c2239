// The C interface of tvm-ffi (apache-tvm-ffi 0.1.15), as far as attend calls it: objects that other libraries
// register, their methods by name, and what goes in and out of these. The library is loaded at run time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace attend::tvm_ffi {

// The interface's own structs, by their places in memory.
enum TypeIndex : int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kTensorPointer = 7,  // a DLTensor
  kSmallText = 11,     // up to 7 bytes in the value itself
  kText = 65,
  kFirstObject = 64,  // from here on values are objects with a count of references
};
struct Any {
  int32_t type_index = kNone;
  uint32_t small_length = 0;  // of kSmallText
  union {
    int64_t integer = 0;
    void* pointer;
    char small_text[8];
  };
};
struct Bytes {
  const char* data;
  size_t size;
};

class Library;

// An argument or a result. An object is kept alive.
class Value {
 public:
  Value() = default;  // none
  explicit Value(int64_t integer) { any_.type_index = kInt, any_.integer = integer; }
  explicit Value(bool boolean) { any_.type_index = kBool, any_.integer = boolean; }
  // A DLTensor, which outlives the call that it is an argument of.
  static Value tensor(void* dl_tensor);
  // Takes over the reference that `any` holds.
  Value(std::shared_ptr<const Library> library, Any any);
  ~Value();
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(Value other) noexcept;

  const Any& any() const { return any_; }
  bool boolean() const { return any_.integer != 0; }
  int64_t integer() const { return any_.integer; }
  std::string text() const;

 private:
  std::shared_ptr<const Library> library_;  // of objects
  Any any_;
};

// A library of tvm-ffi, and one that registers its classes with it.
class Library : public std::enable_shared_from_this<Library> {
 public:
  // Throws Error(kNotFound) with what the loader says, and Error(kUnsupported) for another version.
  static std::shared_ptr<const Library> load(const std::filesystem::path& tvm_ffi,
                                             const std::filesystem::path& classes);

  Value bytes(std::string_view content) const;
  Value text(std::string_view content) const;
  Value array(std::span<const Value> items) const;
  // A method of a class. Throws Error(kUnsupported) where there is none.
  struct Method {
    void* function = nullptr;
  };
  Method method(const std::string& type, std::string_view name) const;
  // An object's method takes it as the first argument. Throws Error(kInvalidArgument) with what the method
  // says. On any thread.
  Value call(Method method, std::span<const Value> arguments) const;
  Value call(Method method, std::initializer_list<Value> arguments) const {
    return call(method, std::span(arguments.begin(), arguments.size()));
  }

  void retain(void* object) const { functions_.retain(object); }
  void release(void* object) const { functions_.release(object); }

 private:
  Library() = default;
  std::string raised_error() const;

  struct Functions {
    void (*version)(uint32_t* major_minor_patch);
    int (*retain)(void* object);
    int (*release)(void* object);
    int (*type_index)(const Bytes* key, int32_t* index);
    const void* (*type_info)(int32_t index);
    int (*global_function)(const Bytes* name, void** function);
    int (*call)(void* function, const Any* arguments, int32_t num, Any* result);
    void (*take_error)(void** error);
    int (*make_text)(const Bytes* content, Any* text);
    int (*make_bytes)(const Bytes* content, Any* bytes);
  };
  Functions functions_ = {};
  Method make_array_;
};

}  // namespace attend::tvm_ffi
