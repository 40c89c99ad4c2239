// Lines typed on a terminal, with the keys of readline and a history.
#pragma once

#include <histedit.h>

#include <memory>
#include <string>

namespace attend::cli {

class LineEditor {
 public:
  enum class Result {
    kLine,
    kEnd,        // Ctrl-D on an empty line, or the end of the input
    kInterrupt,  // Ctrl-C on an empty line; on another line it clears the line
  };

  // Writes to stderr.
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;

  // Shows the prompt and reads a line into `line`, without its end. Handles SIGINT meanwhile.
  Result read(const char* prompt, std::string& line);

 private:
  static char* prompt(EditLine* editor);
  static int read_key(EditLine* editor, wchar_t* key);
  static unsigned char clear_line(EditLine* editor, int key);

  struct Deleter {
    void operator()(EditLine* editor) const { el_end(editor); }
    void operator()(History* history) const { history_end(history); }
  };

  int interrupt_event_;  // readable after SIGINT
  const char* prompt_ = "";
  bool was_interrupted_ = false;  // on an empty line
  std::unique_ptr<History, Deleter> history_;
  std::unique_ptr<EditLine, Deleter> editor_;
};

}  // namespace attend::cli
